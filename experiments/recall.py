"""Which of pairs, copies, a parity, permutations and a needle does each model recall, and over which distance?

    python -m experiments.recall                                     # an LSTM, a Transformer and Mamba on six tasks
    python -m experiments.recall --tasks associative_recall --models transformer hybrid gated_deltanet rwkv7
    python -m experiments.recall --tasks parity permutations --models lstm mamba gated_deltanet deltaproduct
    python -m experiments.recall --num-seeds 3 --steps 2000
    python -m experiments.recall --smoke                             # tiny sizes, takes seconds

Time: 12 minutes on 2 cores (five tasks took 10).

Every task has a solution, which a test checks. Expected (docs/experiments.md): two layers of attention recall all of 8
pairs, at twice the length too, and the LSTM of equal size hardly more than a guess; the LSTM tells the parity of rows
twice as long as those of training, and attention that of no row it could not learn by heart. DeltaProduct does both.
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from experiments.common.command import experiment_main
from experiments.common.tasks import RecallRun, recall_model, run_task
from keras_seq import training
from keras_seq.commands.options import LogDir, Resume, Smoke, check_options, check_unique
from keras_seq.data.synthetic import RECALL_TASKS, RecallTask
from keras_seq.models import LANGUAGE_MODELS
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, plus_minus, without_texts
from keras_seq.tracking import Summaries


@dataclasses.dataclass(frozen=True)
class RecallConfig:
    """Train models of equal size on tasks of memory."""

    tasks: tuple[Literal[tuple(RECALL_TASKS)], ...] = tuple(RECALL_TASKS)
    """Tasks, each of which every model is trained on by itself."""
    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "transformer", "mamba")
    """Models to train, all of some 100,000 parameters and two layers (rnn, gru, lstm: one)."""
    num_seeds: int = 1
    """Number of runs of each model on each task, with the random seeds 0, 1, ..."""
    max_length: int = 16
    """Maximum length of the training rows, before the queries. Tests go up to twice this length."""
    max_items: int = 8
    """Maximum number of pairs or letters to recall in training; tests go up to twice as many that fit."""
    alphabet_size: int = 32
    """Number of letters, or of keys and of values; in parity there are two, of permutations 11."""
    steps: int = 800
    """Training steps of each run."""
    batch_size: int = 64
    """Rows of a batch."""
    test_rows: int = 500
    """Rows of each length and number of items in the final test."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(validate_every=200, checkpoint_every=400)
    )

    def __post_init__(self):
        check_options(self, num_seeds=1, max_length=2, max_items=1, alphabet_size=2, steps=1, batch_size=1, test_rows=1)
        check_unique("--tasks", self.tasks)
        check_unique("--models", self.models)
        if 2 * self.max_items > self.max_length:
            expected = f"at most half the --max-length, {self.max_length // 2}"
            raise ValueError(f"--max-items {self.max_items}: expected {expected}.")
        if self.alphabet_size < 2 * self.max_length:
            expected = f"at least twice the --max-length, {2 * self.max_length}"
            raise ValueError(f"--alphabet-size {self.alphabet_size}: expected {expected}.")

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        unused = {}
        if not any(RECALL_TASKS[name].has_items for name in self.tasks):
            unused["max_items"] = "a task with several items among --tasks"
        if all(RECALL_TASKS[name].num_ids for name in self.tasks):
            unused["alphabet_size"] = "another task than parity and permutations among --tasks"
        return unused

    def task(self, name: str, seed: int = 0) -> RecallTask:
        """Return a task with its training sizes."""
        task = RECALL_TASKS[name]
        items = (1, self.max_items if task.has_items else 1)
        alphabet_size = task.num_ids or self.alphabet_size
        return task(alphabet_size, (task.min_length, self.max_length), items, self.batch_size, seed)

    def test_sizes(self, name: str) -> list[tuple[int, int]]:
        """Return the lengths and numbers of items to test a task at, from small to large."""
        task = RECALL_TASKS[name]
        lengths = sorted({max(task.min_length, 2 * self.max_length >> n) for n in range(4)})
        items = sorted({max(1, 2 * self.max_items >> n) for n in range(5)}) if task.has_items else [1]
        return [(length, n) for n in items for length in lengths if task.shortest(n) <= length]

    def model_config(self, name: str) -> Any:
        """Return the config of a model, with a context that holds the longest test."""
        return recall_model(name, 2 * (self.max_length + self.max_items) + 2, self.smoke)


SMOKE = {
    "tasks": ("associative_recall", "parity"),
    "models": ("lstm", "transformer"),
    "max_length": 4,
    "max_items": 2,
    "alphabet_size": 8,
    **{"steps": 40, "batch_size": 8, "test_rows": 20},
    "train": {"warmup_steps": 4, "log_every": 10, "validate_every": 20, "checkpoint_every": 20},
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A model on a task, at one length and number of items: the accuracies of all seeds."""

    length: int
    items: int
    is_trained: bool
    chance: float
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """Mean over the seeds."""
        return statistics.mean(self.accuracies)

    def __str__(self) -> str:
        """Return the mean and the standard deviation in percent."""
        mean, *deviation = plus_minus([100 * value for value in self.accuracies], 1).split(" ± ")
        return " ± ".join(f"{value}%" for value in (mean, *deviation))


@dataclasses.dataclass(frozen=True)
class Finding:
    """One model on one task."""

    task: str
    model: str
    parameters: int
    seconds: float
    cells: tuple[Cell, ...]

    @property
    def hardest(self) -> Cell:
        """The cell of the largest sizes of training."""
        return max((cell for cell in self.cells if cell.is_trained), key=lambda cell: (cell.length, cell.items))

    @property
    def twice_as_long(self) -> Cell:
        """The cell of as many items, at twice the length."""
        (cell,) = (c for c in self.cells if (c.length, c.items) == (2 * self.hardest.length, self.hardest.items))
        return cell


def find(rows: Sequence[dict]) -> list[Finding]:
    """Return a finding for each task and model, in the order of the rows, over all of its seeds."""
    findings = []
    for task, model in dict.fromkeys((row["task"], row["model"]) for row in rows):
        runs = [row for row in rows if (row["task"], row["model"]) == (task, model)]
        cells = []
        for groups in zip(*(run["groups"] for run in runs), strict=True):  # of one size, by all seeds
            sizes = (groups[0][key] for key in ("length", "items", "trained", "chance"))
            cells.append(Cell(*sizes, tuple(group["accuracy"] for group in groups)))
        seconds = statistics.mean(run["train_seconds"] for run in runs)
        findings.append(Finding(task, model, runs[0]["parameters"], seconds, tuple(cells)))
    return findings


def verdict(findings: Sequence[Finding]) -> str:
    """Say of each task what each model recalls at the largest sizes it was trained on, and at twice the length."""
    sentences = []
    for task in dict.fromkeys(finding.task for finding in findings):
        of_task = [finding for finding in findings if finding.task == task]
        cell, longer = of_task[0].hardest, of_task[0].twice_as_long
        parts = [f"{f.model} {f.hardest.accuracy:.1%} and {f.twice_as_long.accuracy:.1%}" for f in of_task]
        items = f" with {cell.items} items" if cell.items > 1 else ""
        sizes = f"{task} at length {cell.length} and {longer.length}{items}"
        sentences.append(f"{sizes}: {', '.join(parts)}, guessing {cell.chance:.1%}.")
    seeds = len(findings[0].cells[0].accuracies)
    count = "One seed" if seeds == 1 else f"{seeds} seeds"
    return " ".join([*sentences, f"{count} each; the second length is beyond training."])


def heat_map(axes: Axes, cells: Sequence[Cell]):
    """Draw the accuracy of each cell as a color and a number; a frame holds the sizes of training."""
    lengths, items = (sorted({getattr(cell, key) for cell in cells}) for key in ("length", "items"))
    grid = np.full((len(items), len(lengths)), np.nan)
    for cell in cells:
        row, column = items.index(cell.items), lengths.index(cell.length)
        grid[row, column] = cell.accuracy
        color = "white" if cell.accuracy < 0.6 else "black"
        axes.text(column, row, f"{100 * cell.accuracy:.0f}", ha="center", va="center", color=color, fontsize=9)
    image = axes.imshow(grid, vmin=0, vmax=1, cmap="viridis", origin="lower", aspect="auto")
    for row, column in {(items.index(c.items), lengths.index(c.length)) for c in cells if c.is_trained}:
        corner, style = (column - 0.46, row - 0.46), {"fill": False, "edgecolor": "white", "linewidth": 1.5}
        axes.add_patch(Rectangle(corner, 0.92, 0.92, **style))
    axes.set_xticks(range(len(lengths)), lengths)
    axes.set_yticks(range(len(items)), items)
    axes.grid(visible=False)
    axes.set_xlabel("length")
    return image


def single_heat_map(cells: Sequence[Cell], title: str) -> Figure:
    """Return the heat map of one run, for TensorBoard."""
    figure, axes = plots.subplots(figsize=(4, 1.6 + 0.35 * len({cell.items for cell in cells})))
    heat_map(axes, cells)
    axes.set_title(title)
    axes.set_ylabel("items")
    return figure


def plot_findings(folder: pathlib.Path, findings: Sequence[Finding]):
    """Write recall.png: a row for each task, a column for each model."""
    tasks, models = (list(dict.fromkeys(getattr(f, key) for f in findings)) for key in ("task", "model"))
    heights = {f.task: 1.4 + len({cell.items for cell in f.cells}) for f in findings}
    figure, grid = plots.subplots(
        len(tasks),
        len(models),
        figsize=(2.2 + 2.8 * len(models), 0.6 + 0.42 * sum(heights.values())),
        height_ratios=[heights[task] for task in tasks],
        squeeze=False,
    )
    for finding in findings:
        row, column = tasks.index(finding.task), models.index(finding.model)
        axes = grid[row, column]
        image = heat_map(axes, finding.cells)
        if not row:
            axes.set_title(finding.model)
        axes.set_ylabel(f"{finding.task}\nitems" if not column else "")
    figure.colorbar(image, ax=grid, format=PercentFormatter(1), label="accuracy", fraction=0.03)
    plots.save(figure, folder / "recall.png")


COLUMNS = {
    "task": lambda f: f.task,
    "model": lambda f: f.model,
    "parameters": lambda f: f"{f.parameters:,}",
    "train seconds": lambda f: f"{f.seconds:.0f}",
    "length x items": lambda f: f"{f.hardest.length} x {f.hardest.items}",
    "accuracy": lambda f: str(f.hardest),
    "twice as long": lambda f: str(f.twice_as_long),
    "guessing": lambda f: f"{f.hardest.chance:.1%}",
}
NOTES = (
    "Each model is trained on each task by itself. accuracy: of the ids to recall, at the largest length and number of "
    "items of training (mean ± standard deviation over seeds); in parity and permutations, of the last id. twice as "
    "long: at twice that length, which was not trained. guessing: expected accuracy of a guess that knows all but what "
    "has to be recalled, such as which values there are, but not whose; in selective_copy and needle any letter."
)
IMAGE = "![Accuracy in percent by length and number of items; sizes of training are framed](recall.png)"


def recall_report(folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report."""
    findings = find(rows)
    plot_findings(folder, findings)
    return Report(
        "Recall",
        verdict(findings),
        Table.of(findings, COLUMNS),
        ("task", "model", "accuracy", "twice as long", "guessing"),
        without_texts(rows),
        NOTES,
        [IMAGE, "## By length and number of items", by_size(findings)],
        {f"Samples of {row['run']}": row["sample"] for row in rows},
    )


def by_size(findings) -> Table:
    """Return the accuracy of each task and model at each size, with a star at sizes of training."""
    models = list(dict.fromkeys(finding.model for finding in findings))
    lines = []
    for task in dict.fromkeys(finding.task for finding in findings):
        columns = [finding.cells for finding in findings if finding.task == task]
        for cells in zip(*columns, strict=True):
            size = f"{cells[0].length} x {cells[0].items}{' *' if cells[0].is_trained else '  '}"
            lines.append([task, size, *map(str, cells), f"{cells[0].chance:.1%}"])
    return Table(["task", "length x items", *models, "guessing"], lines)


def train_all(settings: RecallConfig, folder: pathlib.Path) -> Report:
    """Train every model on every task, unless it is finished in `folder`, and report what they recall."""
    for name in settings.models:  # raises before anything is written
        settings.model_config(name).build_model(settings.task(settings.tasks[0]).vocabulary_size)
    print(
        f"{len(settings.tasks)} tasks of lengths up to {settings.max_length}, {len(settings.models)} models, "
        f"{settings.steps:,} steps of {settings.batch_size} rows each"
    )
    rows = []
    for task in settings.tasks:
        for seed in range(settings.num_seeds):
            for model in settings.models:
                rows.append(train_one(settings, folder, task, model, seed))
    return recall_report(folder, rows)


def train_one(settings: RecallConfig, folder: pathlib.Path, task: str, name: str, seed: int) -> dict:
    """Return the result of a model on a task."""
    config = settings.model_config(name)

    def new_task(_):
        model = config.build_model(settings.task(task).vocabulary_size, dtype=settings.train.dtype_policy)
        run = RecallRun(model, settings, task, seed)

        def accuracies():
            row = {"task": task, "model": name, "parameters": 0, "train_seconds": 0, "groups": run.groups()}
            figure = single_heat_map(find([row])[0].cells, f"{task}, {name}")
            return Summaries({}, images={"recall": plots.pixels(figure)})

        run.diagnostics = [accuracies]
        return run

    return {**run_task(folder, settings, f"{task}-{name}", config, new_task, seed=seed), "model": name}


main = experiment_main("recall", RecallConfig, SMOKE, train_all, __doc__)

if __name__ == "__main__":
    main()

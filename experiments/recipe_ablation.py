"""Why did the legacy char-RNN end at a high loss? An ablation from its recipe to the new one, one change at a time.

    python -m experiments.recipe_ablation                                     # Python's docstrings, offline
    python -m experiments.recipe_ablation --corpus shakespeare                # the text of the legacy loss curve
    python -m experiments.recipe_ablation --corpus shakespeare --full-size optimizer stateful-windows
    python -m experiments.recipe_ablation --changes more-steps optimizer whitespace       # other order, fewer changes
    python -m experiments.recipe_ablation --smoke                             # tiny sizes, takes seconds

Time: 22 minutes on 2 cores.

The legacy recipe is trained once unchanged; then one change after the other is applied, at 128 units, with the same
number of characters. The improvements add up to the total exactly.

Expected on tiny Shakespeare: from 2.597 to 1.609 nats per original character. docs/recipe_ablation.md has each change.
"""

import copy
import dataclasses
import functools
import itertools
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Literal

from matplotlib.axes import Axes

from experiments.common.command import experiment_main
from experiments.common.jobs import run_all
from keras_seq import checks, training
from keras_seq.commands.options import (
    CorpusName,
    LogDir,
    Resume,
    Seed,
    Smoke,
    check_multiple,
    check_options,
    check_unique,
    replaced,
)
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.data.pipeline import step_dataset
from keras_seq.data.windows import Windows
from keras_seq.evaluation import Evaluator
from keras_seq.generation import TextGenerator
from keras_seq.models import LSTMConfig
from keras_seq.random_draws import uniform
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus, smoke_corpus
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries
from keras_seq.training.config import LEARNING_RATES
from keras_seq.training.run_config import diff, leaf_name

# cumulative   legacy -> small size -> one change after the other -> new    each recipe is the last one with a change
# individual   the legacy recipe at the small size with one change          the effect of a change without the others
# full size    the legacy recipe at its own size with one change            whether the small size ranks changes equally
SMALL_SIZE = {"units": lambda units: max(1, units // 8)}
SPLIT = 10  # smaller batches that replace a legacy batch
CHANGES = {  # as for `replaced`
    "pipeline": {"pipeline": "tensors"},
    "stateful-windows": {"windows": "stateful"},
    "state-resets": {"reset_prob": 0.25},
    "initializer": {"recurrent_initializer": "orthogonal"},
    "clipping": {"train": {"global_clipnorm": 1.0}},
    "schedule": {"train": {"warmup_steps": 10, "final_lr_fraction": 0.02}},
    "learning-rate": {"train": {"learning_rate": LEARNING_RATES["adam"]["recurrent"]}},
    "optimizer": {"train": {"optimizer": "muon", "learning_rate": None}},
    "more-steps": {"batch_size": lambda size: size // SPLIT, "num_steps": lambda steps: steps * SPLIT},
    "whitespace": {"keep_whitespace": True},
}
Change = Literal[tuple(CHANGES)]
DURATIONS = ("warmup_steps", "log_every", "validate_every", "checkpoint_every")


@dataclasses.dataclass(frozen=True)
class RecipeConfig:
    """One way to train the char-RNN; the defaults are those of the legacy script."""

    keep_whitespace: bool = False
    """Whether spaces and newlines are part of the text."""
    embedding_dim: int = 128
    """Embedding width D."""
    units: int = 1024
    """Units of the LSTM."""
    recurrent_initializer: Literal["glorot_normal", "orthogonal"] = "glorot_normal"
    """Keras initializer of the recurrent matrix."""
    pipeline: Literal["generator", "tensors"] = "generator"
    """Two sets of random windows, which two pipelines drew once: what the change is worth is noise."""
    windows: Literal["random", "stateful"] = "random"
    """Random windows with carried state, or stateful windows, whose text continues."""
    reset_prob: float = 0.0
    """Probability with which a row starts from the zero state."""
    batch_size: int = 50
    """Batch size B, in windows."""
    sequence_length: int = 200
    """Sequence length T of the training windows, in characters."""
    num_steps: int = 200
    """Training steps of one batch each, which the legacy script called epochs."""
    train: training.TrainConfig = training.TrainConfig(
        optimizer="adam",
        **{"learning_rate": 1e-3, "warmup_steps": 0, "final_lr_fraction": 1.0},
        global_clipnorm=1e9,  # above every gradient norm, so no gradient is clipped
        **{"log_every": 1, "validate_every": 50, "checkpoint_every": 100, "sample_length": 200},
    )


@dataclasses.dataclass(frozen=True)
class RecipeAblationConfig:
    """Explain the loss of the legacy char-RNN by an ablation: apply one change after the other."""

    corpus: CorpusName = "docstrings"
    changes: tuple[Change, ...] = tuple(CHANGES)
    """Changes to apply cumulatively after the size, in this order."""
    individual: tuple[Change, ...] = tuple(c for c in CHANGES if c not in ("pipeline", "initializer", "clipping"))
    """Changes to apply individually to the legacy recipe at the small size."""
    full_size: tuple[Change, ...] = ()
    """Changes to apply individually to the legacy recipe at its full size."""
    seed: Seed = 0
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    legacy: RecipeConfig = RecipeConfig()

    def __post_init__(self):
        check_options(self)
        check_options(self.legacy, embedding_dim=1, units=1, sequence_length=1, num_steps=1)
        check_multiple("--legacy.batch-size", self.legacy.batch_size, SPLIT)
        check_unique("--changes", self.changes)
        checks.number("--legacy.reset-prob", self.legacy.reset_prob, 0, 1)
        if (patience := self.legacy.train.patience) is not None:
            raise ValueError(f"--legacy.train.patience {patience}: expected none, to train all recipes to their end.")

    @property
    def recipes(self) -> dict[str, RecipeConfig]:
        """The recipe of every run by the run's name: first the cumulative ones, from legacy to new."""
        small = recipe = replaced(self.legacy, SMALL_SIZE)
        recipes = {"00-legacy": self.legacy, "01-size": small}
        for number, change in enumerate(self.changes, 2):
            recipe = recipes[f"{number:02d}-{change}"] = replaced(recipe, CHANGES[change])
        recipes |= {f"individual-{change}": replaced(small, CHANGES[change]) for change in self.individual}
        return recipes | {f"full-size-{change}": replaced(self.legacy, CHANGES[change]) for change in self.full_size}

    def train_config(self, recipe: RecipeConfig) -> training.TrainConfig:
        """Return the training config of a recipe, whose durations are in legacy batches, in its own steps."""
        factor = recipe.num_steps // self.legacy.num_steps
        return replaced(recipe.train, dict.fromkeys(DURATIONS, lambda steps: steps * factor))


SMOKE = {
    "corpus": smoke_corpus,
    "changes": lambda changes: changes[-1:],
    "individual": ("more-steps",),
    "legacy": {
        **{"embedding_dim": 8, "units": 64, "batch_size": 10, "sequence_length": 12, "num_steps": 4},
        "train": {"validate_every": 2, "checkpoint_every": 2, "sample_length": 20},
    },
}


GENERATOR_SEED = 0x5EED  # of other windows with "generator": what they change is the noise of the ablation


def without_whitespace(data: SplitCorpus, min_length: int) -> SplitCorpus:
    """Return the corpus without spaces and newlines, split at the same place."""
    texts = [re.sub("[ \n]", "", text) for text in (data.train_text, data.validation_text)]
    if (shortest := min(map(len, texts))) < min_length:
        raise ValueError(
            f"A split of the corpus {data.corpus.name!r} has {shortest} characters without its whitespace, fewer than "
            f"the {min_length} of one window: give a longer text or a smaller --legacy.sequence-length."
        )
    stripped = copy.copy(data)
    stripped.train_text, stripped.validation_text = texts
    stripped.tokenizer = CharacterTokenizer.from_text("".join(texts))
    stripped.train, stripped.validation = map(stripped.encode, texts)
    return stripped


def windows(recipe: RecipeConfig, ids, seed: int) -> Windows:
    """Return the training windows of ids `[N]`; the random ones of "generator" are others."""
    sizes = (recipe.batch_size, recipe.sequence_length)
    if recipe.windows == "stateful":
        return StatefulWindows(ids, *sizes, reset_prob=recipe.reset_prob, seed=seed)
    return RandomWindows(ids, *sizes, seed=seed if recipe.pipeline == "tensors" else seed ^ GENERATOR_SEED)


def batches(recipe: RecipeConfig, ids, seed: int) -> Callable:
    """Return a function `(start_step, stop_step) -> dataset` of `((ids [B, T], reset_mask [B]), targets [B, T])`.

    The state is carried into all rows outside `reset_mask`, those of random windows too, as in the legacy script.
    """
    recipe_windows = windows(recipe, ids, seed)
    if recipe.windows == "stateful":
        return recipe_windows.stateful_dataset

    def stateful_batch(step):
        ids, targets = recipe_windows.batch(step)
        return (ids, uniform((recipe.batch_size,), seed, step, "reset mask") < recipe.reset_prob), targets

    return functools.partial(step_dataset, stateful_batch)


def train_one(
    run: pathlib.Path, config: RecipeAblationConfig, recipe: RecipeConfig, data: SplitCorpus, char_ratio: float
) -> dict:
    """Train one recipe; `char_ratio` is the length of the validation text relative to the original one."""
    train, length = config.train_config(recipe), recipe.sequence_length
    lstm = LSTMConfig(recipe.embedding_dim, recipe.units, recurrent_initializer=recipe.recurrent_initializer)
    model = lstm.build_model(data.tokenizer.vocabulary_size, dtype=train.dtype_policy)
    evaluator = Evaluator(model)

    def validate(sample):
        loss = evaluator.chunked_loss(data.validation, length, sample).mean
        return Summaries({"val_loss": loss, "val_loss_per_original_character": loss * char_ratio})

    def finish(summaries):
        return {"val_loss_streaming": evaluator.streaming_loss(data.validation).mean, "char_ratio": char_ratio}

    recipe_config = {"recipe": dataclasses.asdict(recipe), "seed": config.seed}
    return training.train_model(
        *(run, model, batches(recipe, data.train, config.seed), recipe.batch_size * length, recipe.num_steps, train),
        config=run_config(config, "lstm", lstm, train, model, data.corpus, **recipe_config),
        training_model=training.stateful_training_model(model, recipe.batch_size, length),
        tokenizer=data.tokenizer,
        finish=finish,
        **training.sampled_validation(validate, data.validation, length, train),
    )


# An improvement is a decrease of losses that are rounded before, so that cumulative ones add up exactly.
BASES = {"individual": "size", "full-size": "legacy"}
KINDS = ("cumulative", *BASES)


def cumulative_rows(rows: Sequence[dict]) -> dict[str, dict]:
    """Return the cumulative runs by their last change, from "legacy" to the new recipe."""
    return {row["run"][3:]: row for row in rows if row["run"][:2].isdigit()}


def loss(row: dict) -> float:
    """Return the val_loss of a run in nats per original character."""
    return round(row["val_loss_per_original_character"], 3)


def improvements(rows: Sequence[dict]) -> dict[str, dict[str, float]]:
    """Return what each change is worth by kind, where it was measured; the best individual change is first."""
    cumulative = cumulative_rows(rows)
    worth = {
        change: {"cumulative": round(loss(row_before) - loss(row), 3)}
        for row_before, (change, row) in zip(cumulative.values(), [*cumulative.items()][1:], strict=False)
    }
    first = [*worth][1]  # only the size is changed before it, so it is an individual change too
    worth[first]["individual"] = worth[first]["cumulative"]
    for row, (kind, base) in itertools.product(rows, BASES.items()):
        if row["run"].startswith(f"{kind}-"):
            measured = worth.setdefault(row["run"].removeprefix(f"{kind}-"), {})
            measured[kind] = round(loss(cumulative[base]) - loss(row), 3)
    return dict(sorted(worth.items(), key=lambda item: [-item[1].get(kind, -1e9) for kind in KINDS[1::-1]]))


def verdict(rows: Sequence[dict]) -> str:
    """Say what all changes are worth together and one after the other, and which of that is noise."""
    before, *_, after = map(loss, cumulative_rows(rows).values())
    worth = {change: kinds["cumulative"] for change, kinds in improvements(rows).items() if "cumulative" in kinds}
    noise = abs(worth.get("pipeline", 0))
    by_size = sorted(worth, key=lambda change: -abs(worth[change]))
    effects = ", ".join(f"{change} {worth[change]:+.3f}" for change in by_size if abs(worth[change]) > noise) or "none"
    certainty = f"the others are within {noise:.3f}, what other random windows alone change"
    return (
        f"All changes together take val_loss from {before:.3f} to {after:.3f} nats per original character, an "
        f"improvement of {before - after:+.3f}. One after the other: {effects}; "
        f"{certainty if 'pipeline' in worth else 'the noise is not known without the change pipeline'}. One seed."
    )


NOTES = (
    "Losses are in nats per character. train loss: that of the last batch, with the state that was carried into it, as "
    "the legacy script printed it. val_loss@{length}: every disjoint window of {length} characters of the validation "
    "split, from the zero state. val_loss_streaming: the split from start to end with carried state. per original "
    "char: the total loss of the split divided by the characters of the original text; without whitespace the text has "
    "{ratio:.1%} of them, and the loss of the whitespace itself is included only where it is kept. improvement: "
    "decrease of the rounded val_loss per original character; it depends on the order of the changes. An individual "
    "change is applied to the legacy recipe alone. The change pipeline alters the random windows only."
)


def cumulative_table(rows: Sequence[dict], length: int) -> Table:
    """Return a line for each cumulative run, from the legacy recipe to the new one, and the total."""
    header = ["change", "description", "train loss", f"val_loss@{length}", "val_loss_streaming"]
    header += ["val_loss per original char", "streaming per original char", "improvement"]
    lines, recipe, total = [], None, 0.0
    for change, row in cumulative_rows(rows).items():
        differences = diff(recipe or row["recipe"], row["recipe"]).items()
        description = ", ".join(f"{leaf_name(name)} {old} → {new}" for name, (old, new) in differences)
        losses = [row["train_loss"], row["val_loss"], row["val_loss_streaming"], loss(row)]
        cells = [f"{value:.3f}" for value in (*losses, row["val_loss_streaming"] * row["char_ratio"])]
        worth = improvements(rows).get(change, {}).get("cumulative")
        lines.append([change, description or "the legacy script", *cells, "" if worth is None else f"{worth:+.3f}"])
        recipe, total = row["recipe"], total + (worth or 0.0)
    return Table(header, [*lines, ["total", "legacy → new", *[""] * 5, f"{total:+.3f}"]])


def sample(run: pathlib.Path, recipe: dict) -> str:
    """Generate text with the model of a finished run."""
    model, tokenizer = training.load_run(run)
    prompt = tokenizer.characters[0]
    return TextGenerator(model, tokenizer)(prompt, recipe["train"]["sample_length"], temperature=0.8)[len(prompt) :]


def plot_waterfall(axes: Axes, rows: Sequence[dict]):
    """Draw a bar from the loss before to the loss after each change, between those of legacy and new."""
    losses = {change: loss(row) for change, row in cumulative_rows(rows).items()}
    low, high = min(losses.values()), max(losses.values())
    bottom = max(0.0, low - 0.25 * (high - low) - 0.01)
    names, ends = [*losses, "new"], [*losses.values(), [*losses.values()][-1]]
    starts = [bottom, *ends[:-2], bottom]
    for x, (name, start, end) in enumerate(zip(names, starts, ends, strict=True)):
        is_total = name in ("legacy", "new")
        axes.bar(x, end - start, bottom=start, color="0.45" if is_total else "C2" if end <= start else "C3")
        axes.plot([x - 0.4, min(x + 1, len(losses)) + 0.4], [end, end], color="0.6", linewidth=0.8)
        text = f"{end:.3f}" if is_total else f"{end - start:+.3f}"
        axes.annotate(text, (x, max(start, end)), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set(ylim=(bottom, high + 0.08 * (high - bottom)), ylabel="val_loss, nats per original character")
    axes.set_title("change of the loss, one change after the other", fontsize=10)
    axes.grid(visible=False, axis="x")


def plot_improvements(axes: Axes, improvement: dict[str, dict[str, int]]):
    """Draw the improvements of each change as bars, a color for each kind, the best change at the top."""
    changes = [*reversed(improvement)]
    kinds = [kind for kind in KINDS if any(kind in measured for measured in improvement.values())]
    height = 0.8 / len(kinds)
    for n, kind in enumerate(kinds):
        bars = {y: improvement[change][kind] for y, change in enumerate(changes) if kind in improvement[change]}
        axes.barh([y + 0.4 - height * (n + 0.5) for y in bars], bars.values(), height=height, label=kind)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_yticks(range(len(changes)), changes)
    axes.set_xlabel("improvement, nats per original character")
    axes.legend(loc="lower right")
    axes.grid(visible=False, axis="y")


def train_recipes(config: RecipeAblationConfig, folder: pathlib.Path) -> Report:
    """Train all recipes that are not finished in `folder`, and report what each change is worth."""
    legacy, min_length = config.legacy, config.legacy.sequence_length + 1
    original = SplitCorpus(config.corpus, folder, min_length)
    variants = {True: original, False: without_whitespace(original, min_length)}
    for recipe in config.recipes.values():
        windows(recipe, variants[recipe.keep_whitespace].train, config.seed)
    characters = legacy.num_steps * legacy.batch_size * legacy.sequence_length
    original.introduce(legacy.train, min_length, f"{len(config.recipes)} runs of {characters:,} characters")
    runs = []
    for name, recipe in config.recipes.items():
        data = variants[recipe.keep_whitespace]
        char_ratio = len(data.validation) / len(original.validation)
        train = functools.partial(train_one, folder / name, config, recipe, data, char_ratio)
        runs.append((folder / name, config.seed, train))
    rows = [
        {"run": name, "recipe": dataclasses.asdict(recipe), **result}
        for (name, recipe), result in zip(config.recipes.items(), run_all(runs), strict=True)
    ]
    legacy_row, small_row, *_, new = cumulative_rows(rows).values()
    title, length = f"Ablation of the legacy recipe on {original.corpus.name}", legacy.sequence_length
    figure, (left, right) = plots.subplots(1, 2, figsize=(14, 6), width_ratios=(3, 2))
    plot_waterfall(left, rows)
    plot_improvements(right, improvements(rows))
    figure.suptitle(f"{title}, val_loss@{length}")
    plots.save(figure, folder / "recipe_ablation.png")
    sizes = [f"individual, {row['recipe']['units']:,} units" for row in (small_row, legacy_row)]
    columns = {
        name: lambda item, kind=kind: f"{item[1][kind]:+.3f}" if kind in item[1] else "-"
        for name, kind in zip(("cumulative", *sizes), KINDS, strict=True)
    }
    return Report(
        title,
        verdict(rows),
        cumulative_table(rows, length),
        ("change", "train loss", "val_loss per original char", "improvement"),
        {"runs": rows, "improvements": improvements(rows)},
        NOTES.format(length=length, ratio=legacy_row["char_ratio"]),
        [
            Table.of([*improvements(rows).items()], {"change": lambda item: item[0], **columns}),
            "![From the legacy loss to the new one, change by change](recipe_ablation.png)",
        ],
        {f"Sample of {row['run']}": sample(folder / row["run"], row["recipe"]) for row in (legacy_row, new)},
        runs=[folder / new["run"]],
    )


main = experiment_main("recipe_ablation", RecipeAblationConfig, SMOKE, train_recipes, __doc__)

if __name__ == "__main__":
    main()

"""A finished run of a language model: let it write, score a text, look at its result; compare runs."""

import contextlib
import dataclasses
import html
import os
import pathlib
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from keras_seq import training
from keras_seq.evaluation import DynamicEvaluation, TextScore, score_text
from keras_seq.generation import generate, stream
from keras_seq.reports import plots
from keras_seq.reports.comparison import ComparisonResults
from keras_seq.reports.comparison_report import compare_report
from keras_seq.reports.tables import Report, Table
from keras_seq.runs.folders import is_run, timestamped_folder
from keras_seq.runs.texts import spread_note
from keras_seq.training import load_result, read_metrics
from keras_seq.training.run_config import read_config
from keras_seq.training.run_folder import STARTED_BY, check_finished

DECISIVE = ("model", "architecture", "train", "optimizer", "loss", "length", "windows", "batches", "tokenizer")
LOSSES = {  # in a notebook: label and key of the result
    "val_loss": "val_loss_per_character",
    "val_loss_streaming": "val_loss_per_character_streaming",
    "train loss": "train_loss_per_character",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A finished run of a language model, as `load_run` and `train` return it.

    Args:
        folder: Its folder.
        model: Its model.
        tokenizer: The tokenizer of its ids.
        result: What result.json holds: losses, sizes, times, a sample.
        config: What config.json holds: what the run was asked for.
    """

    folder: pathlib.Path
    model: keras.Model
    tokenizer: Any
    result: dict
    config: dict

    @property
    def name(self) -> str:
        """Name of the model, such as "lstm"."""
        return self.config["model"]["name"]

    def generate(self, prompt: str | Sequence[str] = "\n", max_new_tokens: int = 300, **options) -> str | list[str]:
        """Return a text that begins with a prompt, or several; `options` as of `keras_seq.generate`.

        The temperature is 0.8 if none is given.
        """
        return generate(self.model, self.tokenizer, prompt, max_new_tokens, **{"temperature": 0.8, **options})

    def stream(self, prompt: str = "\n", max_new_tokens: int = 300, **options) -> Iterator[str]:
        """Yield what follows a prompt, part by part; `options` as of `keras_seq.stream`."""
        return stream(self.model, self.tokenizer, prompt, max_new_tokens, **{"temperature": 0.8, **options})

    def score(self, text: str, adapt: DynamicEvaluation | None = None) -> TextScore:
        """Return the loss of each token of a text, which a notebook shows in color; `adapt` as for `score_text`."""
        return score_text(self.model, self.tokenizer, text, adapt=adapt)

    def __repr__(self) -> str:
        """Return the folder and the losses."""
        losses = ", ".join(f"{label} {self.result[key]:.3f}" for label, key in LOSSES.items())
        return f"<Run {self.folder}: {self.name}, {self.result['parameters']:,} parameters, {losses}>"

    def _repr_html_(self) -> str:
        """Return the losses and the sample for a notebook."""
        cells = "".join(f"<th>{label}</th>" for label in ("model", "parameters", *LOSSES, "seconds"))
        values = [self.name, f"{self.result['parameters']:,}", *(f"{self.result[key]:.3f}" for key in LOSSES.values())]
        row = "".join(f"<td>{html.escape(value)}</td>" for value in [*values, f"{self.result['train_seconds']:.0f}"])
        sample = html.escape(self.result.get("sample", ""))
        return (
            f"<table><tr>{cells}</tr><tr>{row}</tr></table><p>nats per character; {html.escape(str(self.folder))}</p>"
            f'<pre style="white-space: pre-wrap; max-height: 16em; overflow: auto">{sample}</pre>'
        )


@dataclasses.dataclass(frozen=True, repr=False)
class RunReport:
    """The comparison of runs, as `report` returns it: a verdict, tables, and the files in `folder`."""

    folder: pathlib.Path
    results: ComparisonResults
    report: Report

    @property
    def verdict(self) -> str:
        """Which run has the lowest loss, and whether that is more than chance."""
        return self.report.verdict

    @property
    def differences(self) -> dict:
        """The `Difference` in val_loss per character of each later run to the first, by name."""
        return self.results.differences

    def __repr__(self) -> str:
        """Return the verdict and the table."""
        return f"{self.verdict}\n\n{self.report.table}"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own."""
        page = html.escape((self.folder / "compare.html").read_text(encoding="utf-8"))
        return f'<iframe style="width: 100%; height: 40em; border: 0" srcdoc="{page}"></iframe>'


def load_run(folder: str | os.PathLike[str]) -> Run:
    """Load a finished run of a language model from its folder, of `train`, `keras-seq train` or an experiment.

    Raises:
        ValueError: As `keras_seq.training.load_run`; or if result.json is missing or not of a language model.
    """
    folder = pathlib.Path(folder)
    model, tokenizer = training.load_run(folder)
    return Run(folder, model, tokenizer, _result(folder), read_config(folder))


def _result(folder):
    """Return the result of a language model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the error tells it
        result = load_result(folder)
    if result is None:
        problem = "a file of the run is missing or not intact, or it is not finished"
        raise ValueError(f"{folder}: {problem}; --resume {folder} with {STARTED_BY} writes it again.")
    if "val_loss_per_character" not in result:
        raise ValueError(f"{folder} is a run of another kind; expected one of keras-seq train or experiments.compare.")
    return result


def report(runs: Sequence[Run | str | os.PathLike[str]], folder: str | os.PathLike[str] | None = None) -> RunReport:
    """Compare finished runs that were validated on the same text: intervals, curves, tables and a page.

    Runs that differ in their seed only are one model. A run is named by its model, or by its folder where models have
    the same name. Differences are to the first run.

    Args:
        runs: Runs, or their folders.
        folder: Where to write compare.html, compare.md, compare.json and loss_curves.png; by default a new folder,
            logs/report/UTC-TIME.

    Raises:
        ValueError: There is no run, one is not finished, they were validated on other texts or windows, or `folder` is
            a file or has a comparison of its own runs.
    """
    runs = [runs] if isinstance(runs, Run | str | os.PathLike) else runs
    folders = [run.folder if isinstance(run, Run) else pathlib.Path(run) for run in runs]
    if not folders or len({path.resolve() for path in folders}) < len(folders):
        raise ValueError(f"runs={[str(path) for path in folders]}; expected one or more folders, each once.")
    folder = None if folder is None else pathlib.Path(folder)
    if folder is not None and os.path.lexists(folder) and not folder.is_dir():
        raise ValueError(f"folder={str(folder)!r} is a file; expected a folder or an unused name.")
    if folder is not None and (folder / "compare.json").exists() and any(map(is_run, folder.iterdir())):
        raise ValueError(f"folder={str(folder)!r} has the comparison of its runs; expected another folder.")
    rows = [_row(path) for path in folders]
    protocols = {_protocol(row): row for row in rows}
    if len(protocols) > 1:
        first, other, *_ = protocols.values()
        raise ValueError(
            f"{first['run']} and {other['run']} were validated on other texts, by other tokenizers, or on windows of "
            "other lengths; expected runs whose windows are of the same characters."
        )
    _name_rows(rows)
    names = [row["config"].get("corpus", {}).get("name", "a text") for row in rows]
    corpora = [*dict.fromkeys(pathlib.PurePath(name).name or name for name in names)]  # no folder of its writer
    introduction = f"Finished runs: {len(rows)}, on {' and '.join(corpora)}."
    tables = {"Runs": (Table.of(rows, {"model": lambda row: row["model"], "run": lambda row: str(row["run"])}), "")}
    options = {str(row["run"]): {key: row["config"].get(key) for key in ("model", "train", "length")} for row in rows}
    place = timestamped_folder("logs/report") if folder is None else contextlib.nullcontext(folder)
    with place as folder, plots.style():
        folder.mkdir(parents=True, exist_ok=True)
        results = ComparisonResults(
            folder, corpora[0], introduction, rows, scored=_scored(rows), tables=tables, options=options
        )
        finished = compare_report(results)
        finished.write(folder, "compare")
    return RunReport(folder, results, finished)


def _row(path):
    """Return the row of a finished run, with its config."""
    check_finished(path)
    result, config = _result(path), read_config(path)
    flops = config.get("budget", {}).get("train_flops_per_token")
    return {
        **{"run": path, "config": config, "flops_per_token": flops, **result},
        "train_flops": None if flops is None else flops * result["train_tokens"],
    }


def _protocol(row):
    config = row["config"]
    text = config.get("validation", config.get("corpus", {})).get("sha256")  # of a run that names none, the whole text
    return text, repr(config.get("tokenizer")), row["val_sequence_length"]


def _name_rows(rows):
    """Set `model` and `seed` of the rows: runs that differ in their seed only are one model."""
    groups: dict[str, list] = {}
    for row in rows:
        config = row["config"]
        same = repr(_without_seeds({key: config.get(key) for key in DECISIVE}))
        if "seed" in config and config["seed"] in [other["config"].get("seed") for other in groups.get(same, ())]:
            same = str(row["run"].resolve())  # the same seed twice is no further seed
        groups.setdefault(same, []).append(row)
    firsts = [group[0] for group in groups.values()]
    labels = _labels([row["config"]["model"]["name"] for row in firsts], [row["run"].resolve() for row in firsts])
    for label, group in zip(labels, groups.values(), strict=True):
        for seed, row in enumerate(group):
            row |= {"model": label, "seed": row["config"].get("seed", seed)}


def _without_seeds(value):
    if isinstance(value, dict):
        return {key: _without_seeds(inner) for key, inner in value.items() if key != "seed"}
    return [*map(_without_seeds, value)] if isinstance(value, list) else value


def _labels(names, folders):
    """Return the names; where some are equal, the fewest last parts of the folders that tell the runs apart."""
    labels, depth = names, 0
    while len({*labels}) < len(labels):
        depth += 1
        ends = ["/".join(folder.parts[-depth:]) for folder in folders]
        short = [re.sub(r"-seed\d+$", "", end) for end in ends]
        ends = short if len({*short}) == len(short) else ends
        labels = [name if names.count(name) == 1 else end for name, end in zip(names, ends, strict=True)]
    return labels


def _scored(rows):
    """Return the samples of the validation text that the curves of runs are of, in words; None for all of it."""
    notes = []
    for row in rows:
        total = row["config"].get("validation", {}).get("characters", 0)
        sampled = any("val_loss_sample" in line for line in read_metrics(row["run"], "validation"))
        part = row["config"]["train"]["validation_characters"] if sampled else total
        notes.append(spread_note(part, total) if sampled else "all of the text")
    return None if {*notes} == {"all of the text"} else "; ".join(dict.fromkeys(notes))

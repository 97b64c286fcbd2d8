"""Measure how long `experiments.compare` trains until a validation loss is reached, and what the time is spent on."""

import contextlib
import itertools
import json
import pathlib
import statistics
from collections.abc import Sequence

from experiments.benchmark.case import Case
from experiments.benchmark.compare_process import CompareProcess, WorkerError
from experiments.benchmark.settings import ROOT, BenchmarkConfig
from keras_seq.training.durations import seconds_by_part, seconds_to_loss

TIMES = ("steps_to_loss", "whole_to_loss")  # seconds of steps only; of everything since the command was given
VALIDATION_CHARACTERS = 150_000  # more than the validation text has


def measure_times(config: BenchmarkConfig, case: Case, implementations: Sequence[str]) -> tuple[dict, dict]:
    """Run each implementation `repeats` times in turns; return measurements and errors by implementation."""
    runs, errors = {name: [] for name in implementations}, {}
    for _, name in itertools.product(range(config.repeats), implementations):
        try:
            if name not in errors:
                runs[name].append(measure_run(config, case, config.checkout(name)))
        except WorkerError as error:
            errors[name] = str(error)
            del runs[name]
    return {name: summarize(turns) for name, turns in runs.items()}, errors


def measure_run(config: BenchmarkConfig, case: Case, checkout: pathlib.Path) -> dict:
    """Run `experiments.compare` to its end, and return its times, its last loss and the seconds of its parts."""
    lines, arguments = [], [*case.compare_arguments]
    if checkout == ROOT:  # 0.1.0 always validates on the whole validation text
        arguments += ["--train.validation-characters", VALIDATION_CHARACTERS]
    with contextlib.closing(CompareProcess(config, checkout, *arguments)) as process:
        while new_lines := process.wait_for_lines():
            lines += [{"now": process.seconds, **line} for line in new_lines]
        (path,) = pathlib.Path(process.folder.name).glob("compare/*/*/result.json")
        other_seconds = json.loads(path.read_text(encoding="utf-8")).get("other_seconds", {})
        whole = process.seconds
    points = [line for line in lines if line["split"] == "train"]
    seconds = {line["step"]: line["seconds"] for line in points}
    validations = [line for line in lines if line["split"] == "validation"]
    losses = [line.get("val_loss", line.get("nats_per_token")) for line in validations]  # as 0.1.0 called it
    clocks = ([seconds[line["step"]] for line in validations], [line["now"] for line in validations])
    times = (seconds_to_loss(zip(clock, losses, strict=True), case.loss) for clock in clocks)
    return {
        **dict(zip(TIMES, times, strict=True)),
        "val_loss": losses[-1],
        "tokens_per_second": lines[-1]["tokens"] / clocks[0][-1],
        "seconds_by_part": seconds_by_part(points, points[0]["now"], whole, other_seconds),
    }


def summarize(runs: list[dict]) -> dict:
    """Return medians of some runs, None for times if one of them did not reach the loss, and the runs."""
    medians = {}
    for key in (*TIMES, "val_loss", "tokens_per_second"):
        values = [run[key] for run in runs]
        medians[key] = None if None in values else statistics.median(values)
    by_part = [run["seconds_by_part"] for run in runs]
    medians["seconds_by_part"] = {part: statistics.median(run[part] for run in by_part) for part in by_part[0]}
    return {**medians, "runs": runs, "repeats": [1 / run[TIMES[0]] for run in runs] if medians[TIMES[0]] else []}

"""Measure how long `experiments.compare` trains until a validation loss is reached, and what the time is spent on."""

import contextlib
import itertools
import json
import pathlib
import statistics
from collections.abc import Sequence

from experiments.benchmark.case import Case
from experiments.benchmark.compare_process import CompareProcess, WorkerError
from experiments.benchmark.durations import seconds_by_part, seconds_to_loss
from experiments.benchmark.settings import ROOT, BenchmarkConfig

TIMES = ("steps_to_loss", "whole_to_loss")  # seconds of steps only; of everything since the command was given
VALIDATION_CHARACTERS = 150_000  # more than the validation text has


def measure_times(config: BenchmarkConfig, case: Case, implementations: Sequence[str]) -> tuple[dict, dict]:
    """Run each implementation `repeats` times in turns; return measurements and errors by implementation.

    The parts of the first one's time are of one run more.
    """
    runs, errors = {name: [] for name in implementations}, {}
    for _, name in itertools.product(range(config.repeats), implementations):
        try:
            if name not in errors:
                runs[name].append(measure_run(config, case, config.checkout(name)))
        except WorkerError as error:
            errors[name] = str(error)
            del runs[name]
    measurements = {name: summarize(turns) for name, turns in runs.items()}
    first = implementations[0]
    if first in measurements:
        try:
            measurements[first]["seconds_by_part"] = measure_parts(config, case, config.checkout(first))
        except WorkerError as error:
            errors[first] = str(error)
    return measurements, errors


def run_compare(config: BenchmarkConfig, checkout: pathlib.Path, *arguments) -> tuple[list[dict], dict, float]:
    """Run `experiments.compare` to its end.

    Args:
        config: Options of the benchmark.
        checkout: Folder of the checkout of keras_seq to run.
        arguments: Arguments of the command line.

    Returns:
        The lines of metrics.jsonl, with the seconds of the process at each, `now`; the `other_seconds` of result.json;
        and the seconds of the whole process.
    """
    lines = []
    with contextlib.closing(CompareProcess(config, checkout, *arguments)) as process:
        while new_lines := process.wait_for_lines():
            lines += [{"now": process.seconds, **line} for line in new_lines]
        (path,) = pathlib.Path(process.folder.name).glob("compare/*/*/result.json")
        other_seconds = json.loads(path.read_text(encoding="utf-8")).get("other_seconds", {})
        return lines, other_seconds, process.seconds


def measure_parts(config: BenchmarkConfig, case: Case, checkout: pathlib.Path) -> dict[str, float]:
    """Return the seconds of the parts of a run with the defaults, which is validated on the beginning of the text."""
    lines, other_seconds, whole = run_compare(config, checkout, *case.compare_arguments)
    points = [line for line in lines if line["split"] == "train"]
    return seconds_by_part(points, points[0]["now"], whole, other_seconds)


def measure_run(config: BenchmarkConfig, case: Case, checkout: pathlib.Path) -> dict:
    """Run `experiments.compare` to its end, validated on all of the validation text; return its times and last loss."""
    whole_text = ("--train.validation-characters", VALIDATION_CHARACTERS) if checkout == ROOT else ()  # as in 0.1.0
    lines, _, _ = run_compare(config, checkout, *case.compare_arguments, *whole_text)
    seconds = {line["step"]: line["seconds"] for line in lines if line["split"] == "train"}
    validations = [line for line in lines if line["split"] == "validation"]
    losses = [line.get("val_loss", line.get("nats_per_token")) for line in validations]  # as 0.1.0 called it
    clocks = ([seconds[line["step"]] for line in validations], [line["now"] for line in validations])
    times = (seconds_to_loss(zip(clock, losses, strict=True), case.loss) for clock in clocks)
    return {
        **dict(zip(TIMES, times, strict=True)),
        "val_loss": losses[-1],
        "tokens_per_second": lines[-1]["tokens"] / clocks[0][-1],
    }


def summarize(runs: list[dict]) -> dict:
    """Return medians of some runs, None for times if one of them did not reach the loss, and the runs."""
    medians = {}
    for key in (*TIMES, "val_loss", "tokens_per_second"):
        values = [run[key] for run in runs]
        medians[key] = None if None in values else statistics.median(values)
    return {**medians, "runs": runs, "repeats": [1 / run[TIMES[0]] for run in runs] if medians[TIMES[0]] else []}

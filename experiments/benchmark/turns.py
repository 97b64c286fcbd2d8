"""Run the workers of a case in turn: a slow phase of the machine slows all of them, so speedups are taken by round."""

import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import time

from experiments.benchmark.as_run import PausedTraining
from experiments.benchmark.case import Case
from experiments.benchmark.compare_process import WorkerError
from experiments.benchmark.settings import ROOT, BenchmarkConfig

MATRIX_SIZES = {"cpu": 2048, "gpu": 8192}  # rows and columns of the matrices whose product gives the matmul peak
SMOKE_MATRIX_SIZES = {"cpu": 64, "gpu": 64}


class Worker:
    """Process of `experiments.benchmark.worker`; it imports what it needs while others start."""

    def __init__(self, config: BenchmarkConfig, request: dict):
        is_torch = request.get("implementation", "").startswith("torch")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.benchmark.worker", json.dumps(request)],
            cwd=ROOT,
            env=config.environment("torch" if is_torch else config.backend),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def go(self) -> dict:
        """Have the worker do what is next, and return its answer."""
        with contextlib.suppress(OSError):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        last = "no message"
        for line in map(str.strip, self.process.stdout):
            if line.startswith("{"):  # other lines are warnings
                return json.loads(line)
            last = line or last
        raise WorkerError(f"{last} (exit status {self.process.wait()})")

    def close(self):
        """End the process."""
        self.process.kill()
        self.process.communicate()


def describe_device(config: BenchmarkConfig) -> dict:
    """Return the backend's device and its matmul peak, and versions."""
    request = {"matrix_sizes": SMOKE_MATRIX_SIZES if config.smoke else MATRIX_SIZES}
    with contextlib.closing(Worker(config, request)) as worker:
        try:
            return worker.go()
        except WorkerError as error:
            expected = "expected an installed backend that finds its device"
            raise ValueError(f"--backend {config.backend}: {expected}; it ended with {error}.") from None


def take_turns(config: BenchmarkConfig, case: Case, implementations, platform: str) -> tuple[dict, dict]:
    """Time a case; return the measurements of the implementations that succeed, and the errors of the others."""
    request = {"platform": platform, "seconds": config.seconds, "case": dataclasses.asdict(case)}
    answers, errors = {name: [] for name in implementations}, {}
    with contextlib.ExitStack() as exit_stack:
        workers = {}
        for name in implementations:
            if case.kind == "as_run" and not name.startswith("torch"):
                workers[name] = PausedTraining(config, case, name)
            else:
                workers[name] = Worker(config, {"implementation": name, **request})
            exit_stack.callback(workers[name].close)
        rounds = case.steps // case.steps_per_validation - 1 if case.steps else config.repeats
        end_time = time.monotonic() + 60 * config.minutes
        for n in range(2 + rounds):  # the imports, the warm-up, the rounds
            if case.steps and n > 2 and time.monotonic() > end_time:
                break
            for name in [*answers]:
                try:
                    answers[name].append(workers[name].go())
                except WorkerError as error:
                    errors[name] = str(error)
                    del answers[name]
    return {name: summarize(info, rounds) for name, (_, info, *rounds) in answers.items()}, errors


def summarize(info: dict, rounds: list[dict]) -> dict:
    """Return the median speed, all speeds, the peak memory, the lowest loss, and what the worker said of itself."""
    speeds = [answer["tokens_per_second"] for answer in rounds]
    peak = max(answer["peak_megabytes"] or 0.0 for answer in rounds) or None
    losses = [answer["val_loss"] for answer in (info, *rounds) if "val_loss" in answer]
    info = info | ({"val_losses": losses, "val_loss": min(losses)} if losses else {})
    return {"tokens_per_second": statistics.median(speeds), "repeats": speeds, "peak_megabytes": peak, **info}


def speedup(measurements: dict, implementation: str) -> float | None:
    """Return the speed of keras_seq relative to an implementation: the median of the ratios of all rounds."""
    speeds, others = (measurements.get(name, {}).get("repeats") for name in ("keras_seq", implementation))
    if not speeds or not others:
        return None
    return statistics.median(speed / other for speed, other in zip(speeds, others, strict=True))

"""Run the workers of a case in turn: a slow phase of the machine slows all of them, so speedups are taken by round."""

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys

from experiments.benchmark.settings import BenchmarkConfig, Case

MEMORY_FRACTION = "0.3"  # of a GPU, for each of two JAX workers; PyTorch's worker uses the rest
MATRIX_SIZES = {"cpu": 2048, "gpu": 8192}  # rows and columns of the matrices whose product gives the matmul peak
SMOKE_MATRIX_SIZES = {"cpu": 64, "gpu": 64}


class WorkerError(Exception):
    """A worker ended early; the message is the last line that it printed."""


class Worker:
    """Process of `experiments.benchmark.worker`; it imports what it needs while others start."""

    def __init__(self, config: BenchmarkConfig, request: dict):
        backend = "torch" if request.get("implementation") == "torch" else config.backend
        environment = {"KERAS_BACKEND": backend, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        environment |= {"XLA_PYTHON_CLIENT_MEM_FRACTION": MEMORY_FRACTION}
        if config.cpu:
            environment |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.benchmark.worker", json.dumps(request)],
            cwd=pathlib.Path(__file__).parents[2],
            env={**os.environ, **environment},
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
        workers = {name: Worker(config, {"implementation": name, **request}) for name in implementations}
        for worker in workers.values():
            exit_stack.callback(worker.close)
        for _ in range(2 + config.repeats):  # the imports, the warm-up, the rounds
            for name in [*answers]:
                try:
                    answers[name].append(workers[name].go())
                except WorkerError as error:
                    errors[name] = str(error)
                    del answers[name]
    return {name: summarize(info, rounds) for name, (_, info, *rounds) in answers.items()}, errors


def summarize(info: dict, rounds: list[dict]) -> dict:
    """Return the median speed, all speeds, the peak memory, and what the worker said of itself."""
    speeds = [answer["tokens_per_second"] for answer in rounds]
    peak = max(answer["peak_megabytes"] for answer in rounds)
    return {"tokens_per_second": statistics.median(speeds), "repeats": speeds, "peak_megabytes": peak, **info}


def speedup(measurements: dict, implementation: str) -> float | None:
    """Return the speed of keras_seq relative to an implementation: the median of the ratios of all rounds."""
    if not {"keras_seq", implementation} <= measurements.keys():
        return None
    pairs = zip(measurements["keras_seq"]["repeats"], measurements[implementation]["repeats"], strict=True)
    return statistics.median(speed / other_speed for speed, other_speed in pairs)

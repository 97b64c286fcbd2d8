"""Run benchmark workers interleaved: each has a process of its own, warms up, and times a run on request.

    worker -> {"parameters": ..., ...}       then, for each line "go" that it reads,
    worker -> {"tokens_per_second": ..., "peak_megabytes": ...}

A slow phase of the machine slows all workers, so speedups are computed per round.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys

EXPERIMENTS_FOLDER = pathlib.Path(__file__).parent


class Worker:
    """Process that runs one case with one implementation.

    Args:
        case: The `Case` to run.
        implementation: `"keras_seq"`, `"keras"` or `"torch"`.
        seconds: Approximate duration of a timed run.

    Raises:
        RuntimeError: The process ended before it was ready or before a timed run was done.
    """

    def __init__(self, case, implementation, seconds):
        # PyTorch's worker is started from its file, since importing `experiments` would start TensorFlow too; and
        # with -P, so that no module of this folder shadows one of the standard library.
        torch_start = ["-P", str(EXPERIMENTS_FOLDER / "benchmark_torch.py")]
        start = torch_start if implementation == "torch" else ["-m", "experiments.benchmark.keras_worker"]
        request = json.dumps({"implementation": implementation, "seconds": seconds, **dataclasses.asdict(case)})
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        # Keras writes some warnings to stdout; the lines of a worker are the JSON ones.
        self.process = subprocess.Popen(
            [sys.executable, *start, request], cwd=EXPERIMENTS_FOLDER.parent, env=dict(os.environ), **pipes
        )
        self.info = self._answer()

    def __call__(self) -> dict:
        """Time one run."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.close()
        raise RuntimeError(f"{' '.join(self.process.args[1:])} ended with exit status {self.process.returncode}.")

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def run_interleaved(case, implementations, repeats, seconds) -> dict:
    """Time a case with several implementations in turn.

    Args:
        case: The `Case` to run.
        implementations: Names among `"keras_seq"`, `"keras"` and `"torch"`.
        repeats: Number of timed runs of each, after a warm-up.
        seconds: Approximate duration of a timed run.

    Returns:
        For each implementation the median `tokens_per_second`, the speeds of all `repeats`, the `peak_megabytes` of its
        process, and the worker's own `info`.

    Raises:
        RuntimeError: A worker ended early.
    """
    with contextlib.ExitStack() as exit_stack:
        workers = {}
        for name in implementations:
            workers[name] = Worker(case, name, seconds)
            exit_stack.callback(workers[name].close)
        rounds = [{name: worker() for name, worker in workers.items()} for _ in range(repeats)]
        return {name: summarize(rounds, name, worker.info) for name, worker in workers.items()}


def summarize(rounds, implementation, info) -> dict:
    """Summarize the timed runs of one implementation.

    Args:
        rounds: One dict of measurements per round, by implementation.
        implementation: Name of the implementation.
        info: What the worker reports besides its speed.
    """
    speeds = [measurements[implementation]["tokens_per_second"] for measurements in rounds]
    return {
        "tokens_per_second": statistics.median(speeds),
        "repeats": speeds,
        "peak_megabytes": max(measurements[implementation]["peak_megabytes"] for measurements in rounds),
        **info,
    }


def speedup(measurements, implementation) -> float | None:
    """Return the speed of keras_seq relative to another implementation: the median of the ratios of all rounds.

    Args:
        measurements: What `run_interleaved` returns.
        implementation: Name of the other implementation.

    Returns:
        The speedup, or None where the other implementation was not measured.
    """
    if implementation not in measurements:
        return None
    pairs = zip(measurements["keras_seq"]["repeats"], measurements[implementation]["repeats"], strict=True)
    return statistics.median(speed / other_speed for speed, other_speed in pairs)

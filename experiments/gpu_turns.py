"""The workers of `experiments.gpu`, which take turns as those of `experiments.benchmark_turns` do.

They live on one device at the same time, so each of JAX's may take a part of its memory only.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys

from experiments import benchmark_turns

MEMORY = "0.3"  # of the device, for each of two workers on JAX: PyTorch's has the rest
MATRICES = {"gpu": 8192, "other": 1024}  # whose product tells the matmul speed
SMALL_MATRICES = {"other": 64}


def environment(cpu: bool) -> dict[str, str]:
    """What a process of ours is started with.

    Args:
        cpu: whether JAX is to leave a GPU alone.
    """
    return {**os.environ, "KERAS_BACKEND": "jax", **({"JAX_PLATFORMS": "cpu"} if cpu else {})}


def device(cpu: bool, small: bool) -> dict:
    """What JAX runs on, and its matmul speed, measured with small matrices where `small`.

    Raises:
        ValueError: JAX or Keras does not start; with the last line that it said.
    """
    given = json.dumps({"device": SMALL_MATRICES if small else MATRICES})
    command = [sys.executable, "-m", "experiments.gpu_steps", given]
    here = benchmark_turns.HERE.parent
    done = subprocess.run(command, cwd=here, env=environment(cpu), capture_output=True, text=True)
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not answers:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise ValueError(f'JAX or Keras does not start ({said}); expected `pip install "jax[cuda12]" keras tyro`.')
    return json.loads(answers[-1])


class Worker(benchmark_turns.Worker):
    """A process that does one row's work in one way.

    Args:
        row: what to do.
        by: ours, keras or torch.
        seconds: how long a counted run takes about.
        cpu: whether a GPU is left alone.
    """

    def __init__(self, row, by, seconds, cpu):
        start = ["-m", "experiments.gpu_steps"]
        given = {"by": by, "seconds": seconds, **dataclasses.asdict(row)}
        if by == "torch":
            start = ["-P", str(benchmark_turns.HERE / "benchmark_torch.py")]
            given["device"] = "cpu" if cpu else "cuda"
        self.process = subprocess.Popen(
            [sys.executable, *start, json.dumps(given)],
            cwd=benchmark_turns.HERE.parent,
            env={**environment(cpu), "XLA_PYTHON_CLIENT_MEM_FRACTION": MEMORY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.about = self._answer()


def in_turns(row, ways, runs, seconds, cpu) -> dict:
    """As `benchmark_turns.in_turns`; a way that fails, for want of memory for instance, is told by its `error`."""
    with contextlib.ExitStack() as afterwards:
        workers, found = {}, {}
        for way in ways:
            try:
                workers[way] = Worker(row, way, seconds, cpu)
            except RuntimeError as error:
                found[way] = {"error": str(error)}
            else:
                afterwards.callback(workers[way].close)
        turns = [{way: worker() for way, worker in workers.items()} for _ in range(runs)]
    for way, worker in workers.items():
        speeds = [turn[way]["tokens_per_second"] for turn in turns]
        found[way] = {
            "tokens_per_second": statistics.median(speeds),
            "runs": speeds,
            "peak_megabytes": max(turn[way]["peak_megabytes"] for turn in turns),
            **worker.about,
        }
    return found

"""Run the workers of `experiments.benchmark.gpu` interleaved, like those of `experiments.benchmark.workers`.

They share one device, so each JAX worker may use a part of its memory only.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys

from experiments.benchmark import workers as benchmark_workers

MEMORY_FRACTION = "0.3"  # of the device, for each of two JAX workers; PyTorch's worker uses the rest
MATMUL_SIZES = {"gpu": 8192, "other": 1024}  # rows and columns of the matrices whose product gives the matmul peak
SMOKE_MATMUL_SIZES = {"other": 64}


def environment(cpu: bool) -> dict[str, str]:
    """Return the environment of a process on JAX.

    Args:
        cpu: Whether JAX runs on the CPU even where there is a GPU.
    """
    return {**os.environ, "KERAS_BACKEND": "jax", **({"JAX_PLATFORMS": "cpu"} if cpu else {})}


def device(cpu: bool, small: bool) -> dict:
    """Describe the device that JAX runs on and measure its matmul peak, in a separate process.

    Args:
        cpu: Whether JAX runs on the CPU even where there is a GPU.
        small: Whether to measure with small matrices.

    Raises:
        ValueError: JAX or Keras does not start; the message has the last line of its stderr.
    """
    request = json.dumps({"device": SMOKE_MATMUL_SIZES if small else MATMUL_SIZES})
    command = [sys.executable, "-m", "experiments.benchmark.gpu_steps", request]
    root = benchmark_workers.EXPERIMENTS_FOLDER.parent
    process = subprocess.run(command, cwd=root, env=environment(cpu), capture_output=True, text=True)
    answers = [line for line in process.stdout.splitlines() if line.startswith("{")]
    if process.returncode or not answers:
        message = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f'JAX or Keras does not start ({message}); expected `pip install "jax[cuda12]" keras tyro`.')
    return json.loads(answers[-1])


class Worker(benchmark_workers.Worker):
    """Process that runs one case with one implementation.

    Args:
        case: The `Case` to run.
        implementation: `"keras_seq"`, `"keras"` or `"torch"`.
        seconds: Approximate duration of a timed run.
        cpu: Whether to run on the CPU even where there is a GPU.

    Raises:
        RuntimeError: The process ended before it was ready or before a timed run was done.
    """

    def __init__(self, case, implementation, seconds, cpu):
        start = ["-m", "experiments.benchmark.gpu_steps"]
        request = {"implementation": implementation, "seconds": seconds, **dataclasses.asdict(case)}
        if implementation == "torch":
            start = ["-P", str(benchmark_workers.EXPERIMENTS_FOLDER / "benchmark_torch.py")]
            request["device"] = "cpu" if cpu else "cuda"
        self.process = subprocess.Popen(
            [sys.executable, *start, json.dumps(request)],
            cwd=benchmark_workers.EXPERIMENTS_FOLDER.parent,
            env={**environment(cpu), "XLA_PYTHON_CLIENT_MEM_FRACTION": MEMORY_FRACTION},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.info = self._answer()


def run_interleaved(case, implementations, repeats, seconds, cpu) -> dict:
    """Time a case with several implementations in turn, on one device.

    Args:
        case: The `Case` to run.
        implementations: Names among `"keras_seq"`, `"keras"` and `"torch"`.
        repeats: Number of timed runs of each, after a warm-up.
        seconds: Approximate duration of a timed run.
        cpu: Whether to run on the CPU even where there is a GPU.

    Returns:
        As `benchmark_workers.run_interleaved`; for an implementation that does not start, for example for lack of
        memory, a dict with its `error`.

    Raises:
        RuntimeError: A worker ended during the timed runs.
    """
    with contextlib.ExitStack() as exit_stack:
        workers, summaries = {}, {}
        for name in implementations:
            try:
                workers[name] = Worker(case, name, seconds, cpu)
            except RuntimeError as error:
                summaries[name] = {"error": str(error)}
            else:
                exit_stack.callback(workers[name].close)
        rounds = [{name: worker() for name, worker in workers.items()} for _ in range(repeats)]
    for name, worker in workers.items():
        summaries[name] = benchmark_workers.summarize(rounds, name, worker.info)
    return summaries

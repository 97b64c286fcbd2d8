"""Train the runs of an experiment in several processes: `--jobs N`.

    the command          starts N workers, waits for them, and reports: every run is finished then
    a worker             the same command with --resume FOLDER; it trains each run that nobody else has claimed

A run whose worker was killed is trained on by another one, from its checkpoint; the command itself does what is left.
Workers on other machines: the same command with --resume FOLDER, where FOLDER is on a file system that they share.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from experiments.frame.claims import claim

WORKER = "KERAS_SEQ_JOB"  # in the environment of a worker: its number
POLL_SECONDS = 0.5


def is_worker() -> bool:
    """Return whether this process is a worker."""
    return WORKER in os.environ


def finish_all(runs: Sequence[tuple[pathlib.Path, Callable[[], dict]]]) -> list[dict]:
    """Return the results of all runs: train those that nobody else trains, and wait for the others.

    Args:
        runs: Folder of each run, and a function that trains it, unless it is finished, and returns its result.
    """
    results = {}
    while len(results) < len(runs):
        before = len(results)
        for run, train in runs:
            if run in results:
                continue
            with claim(run) as claimed:
                if claimed:
                    results[run] = train()
        if len(results) == before:
            time.sleep(POLL_SECONDS)
    return [results[run] for run, _ in runs]


def run_workers(script: str, folder: pathlib.Path, number: int) -> None:
    """Start the workers of a command, say which runs they finish, and wait for them.

    Args:
        script: Name of the module.
        folder: Folder of the runs.
        number: Number of workers.
    """
    command = [sys.executable, "-m", script, "--resume", str(folder)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus, finished, workers = _gpus(), set(_finished(folder)), []
    print(f"{number} jobs, whose output is in {folder}/job-*.log", flush=True)
    try:
        for n in range(number):
            with open(folder / f"job-{n}.log", "a", encoding="utf-8") as log:
                environment = {**os.environ, **_share(n, max(1, cores // number), gpus), WORKER: str(n)}
                workers.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        while any(worker.poll() is None for worker in workers):
            time.sleep(POLL_SECONDS)
            for name in sorted(set(_finished(folder)) - finished):
                print(f"{name} is finished", flush=True)
                finished.add(name)
    except BaseException:
        for worker in workers:  # each saves a checkpoint
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait()
        raise
    for n, worker in enumerate(workers):
        if worker.returncode:
            print(f"Job {n} ended with status {worker.returncode}; what it left is done now.", file=sys.stderr)


def _finished(folder):
    return [path.parent.name for path in folder.glob("*/result.json")]


def _share(n, threads, gpus):
    """Return the environment variables that give a worker its share of cores and GPUs."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "NPROC")  # NPROC: XLA's, for JAX
    share = {name: os.environ.get(name, str(threads)) for name in names}
    return {**share, **({"CUDA_VISIBLE_DEVICES": gpus[n % len(gpus)]} if gpus else {})}


def _gpus():
    """Return the names of the GPUs that this process may use, without starting them."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(n) for n, _ in enumerate(listed.splitlines())]

"""Several processes train the runs of a folder; one of them is killed at a random moment. Also a program of its own.

    python tests/experiments/jobs_run.py --trials 10                a table: the moment, who was killed, what ended how

A run is a loop over NumPy arrays that takes 0.2 s and goes on from its last checkpoint. Each process is a fork.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import numpy as np

from experiments.frame import jobs
from keras_seq import training
from keras_seq.atomic_files import write_json

RUNS, JOBS, STEPS, SECONDS = 6, 3, 20, 0.01


def train(run, seed):
    """Train a run, from its checkpoint if it has one, unless it is finished."""
    if (result := training.load_result(run)) is not None:
        return result
    run.mkdir(parents=True, exist_ok=True)
    with open(run / "starts", "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    checkpoint = run / "checkpoint.json"
    state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "weights": [0.0] * 8}
    weights = np.array(state["weights"])
    for step in range(state["step"], STEPS):
        weights = 0.9 * weights + np.random.default_rng([seed, step]).normal(size=8)
        time.sleep(SECONDS)
        write_json(checkpoint, {"step": step + 1, "weights": weights.tolist()})
    with open(run / "ends", "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    result = {"weights": weights.tolist()}
    training.write_result(run, result)
    return result


def runs(folder):
    """The runs of a folder, as `finish_all` takes them."""
    return [(folder / f"run-{n}", lambda n=n: train(folder / f"run-{n}", n)) for n in range(RUNS)]


def start_worker(folder):
    """Start a process that takes part; return its id."""
    if (process := os.fork()) == 0:
        status = 1
        try:
            status = int(len(jobs.finish_all(runs(folder))) != RUNS)
        finally:
            os._exit(status)
    return process


def end(folder):
    """The bytes of the results of a folder."""
    return {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*/result.json")}


def trial(folder, moment, victim):
    """Kill one of the workers; return how the others ended, and how often each run started and ended."""
    workers = [start_worker(folder) for _ in range(JOBS)]
    time.sleep(moment)
    os.kill(workers[victim], signal.SIGKILL)
    statuses = [os.waitpid(worker, 0)[1] for worker in workers]
    assert statuses[victim] == signal.SIGKILL, "it had ended before"
    others = [status for n, status in enumerate(statuses) if n != victim]
    return others, *([len(p.read_text().split()) for p in sorted(folder.glob(f"*/{n}"))] for n in ("starts", "ends"))


def main():
    """Run the trials, and compare each with runs one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments, failures = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as parent:
        alone = pathlib.Path(parent) / "alone"
        for _, train_run in runs(alone):
            train_run()
        for n in range(options.trials):
            folder, moment, victim = pathlib.Path(parent) / str(n), moments.uniform(0.05, 0.45), moments.randrange(JOBS)
            others, starts, ends = trial(folder, moment, victim)
            same = end(folder) == end(alone)
            failures += not (same and others == [0] * (JOBS - 1) and ends == [1] * RUNS)
            print(
                f"killed {victim} after {moment:.2f} s: starts {starts}, ends {ends}, {same and 'bit-equal'}",
                flush=True,
            )
    print(f"{options.trials - failures} of {options.trials}: every run ended once, as alone")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()

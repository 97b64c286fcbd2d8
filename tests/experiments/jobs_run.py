"""Several processes train the runs of a folder; one of them is killed at a random moment. Also a program of its own.

    python -m tests.experiments.jobs_run --trials 10                a table: the moment, who was killed, what ended how

A run trains a tiny LSTM for a few seconds; in the default tests it is a loop over NumPy arrays that takes 0.2 s. Both
go on from their last checkpoint. Each process is a fork of one that only imports TensorFlow.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from experiments.common.jobs import finish_all
from keras_seq import training
from keras_seq.data import StatefulWindows
from keras_seq.files import write_json
from keras_seq.models import LSTMConfig
from keras_seq.tracking import Summaries
from keras_seq.training import optimizers

RUNS, JOBS, STEPS, SECONDS = 6, 3, 20, 0.01


@contextlib.contextmanager
def counted(run):
    """Note who starts a run, and who ends it."""
    run.mkdir(parents=True, exist_ok=True)
    for name in ("starts", "ends"):
        with open(run / name, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        if name == "starts":
            yield


def train_loop(run, seed):
    """Train a run, from its checkpoint if it has one, unless it is finished."""
    if (result := training.load_result(run)) is not None:
        return result
    with counted(run):
        checkpoint = run / "checkpoint.json"
        state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "weights": [0.0] * 8}
        weights = np.array(state["weights"])
        for step in range(state["step"], STEPS):
            weights = 0.9 * weights + np.random.default_rng([seed, step]).normal(size=8)
            time.sleep(SECONDS)
            write_json(checkpoint, {"step": step + 1, "weights": weights.tolist()})
    training.write_result(run, {"weights": weights.tolist()})
    return {"weights": weights.tolist()}


def train_lstm(run, seed):
    """Train a tiny LSTM, from its checkpoint if it has one, unless it is finished."""
    if (result := training.load_result(run)) is not None:
        return result
    optimizers.has_time_loop = lambda model: True  # no XLA, which would take longer than the training
    with counted(run):
        keras.backend.clear_session()
        keras.utils.set_random_seed(seed)
        ids = np.random.default_rng(seed).integers(9, size=400).astype("int32")
        windows = StatefulWindows(ids, batch_size=3, sequence_length=5, reset_prob=0.3, seed=seed)
        model = LSTMConfig(embedding_dim=3, units=4, dropout=0.2).build_model(9)
        training_model = training.stateful_training_model(model, 3, 5)
        config = training.TrainConfig(warmup_steps=5, log_every=20, validate_every=100, checkpoint_every=20)
        training.compile_model(training_model, config, 400)
        logger, _ = training.fit_resumable(
            *(run, training_model, windows.stateful_dataset, 15, 400, config),
            lambda: Summaries({"val_loss": 1.0}),
            {"seed": seed},
        )
    digest = hashlib.blake2b(b"".join(weight.tobytes() for weight in training_model.get_weights())).hexdigest()
    training.write_result(run, {"weights": digest, "loss": logger.loss})
    return training.load_result(run)


def runs(folder, train=train_loop):
    """The runs of a folder, as `finish_all` takes them."""
    return [(folder / f"run-{n}", lambda n=n: train(folder / f"run-{n}", n)) for n in range(RUNS)]


def start_worker(folder, train):
    """Start a process that takes part; return its id."""
    if (process := os.fork()) == 0:
        status = 1
        try:
            with open(folder.with_suffix(".log"), "a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            status = int(len(finish_all(runs(folder, train))) != RUNS)
        finally:
            os._exit(status)
    return process


def end(folder):
    """The bytes of the results of a folder."""
    return {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*/result.json")}


def trial(folder, moment=None, victim=None, train=train_loop, number=JOBS):
    """Kill one of the workers; return the status of each, and how often each run started and ended."""
    workers = [start_worker(folder, train) for _ in range(number)]
    if victim is not None:
        time.sleep(moment)
        os.kill(workers[victim], signal.SIGKILL)
    statuses = [os.waitpid(worker, 0)[1] for worker in workers]
    return statuses, *([len(p.read_text().split()) for p in sorted(folder.glob(f"*/{n}"))] for n in ("starts", "ends"))


def main():
    """Run the trials, and compare each with runs one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", choices=("loop", "lstm"), default="lstm")
    options = parser.parse_args()
    train = {"loop": train_loop, "lstm": train_lstm}[options.train]
    chance, done, failures = random.Random(options.seed), 0, 0
    with tempfile.TemporaryDirectory() as name:
        parent = pathlib.Path(name)
        assert trial(parent / "alone", train=train, number=1)[0] == [0], (parent / "alone.log").read_text()
        begun = time.monotonic()
        assert trial(parent / "whole", train=train)[0] == [0] * JOBS
        seconds, expected = time.monotonic() - begun, end(parent / "alone")
        print(f"nobody killed: {seconds:.0f} s, {end(parent / 'whole') == expected and 'bit-equal'}", flush=True)
        while done < options.trials:
            folder, moment, victim = (
                parent / f"{time.monotonic()}",
                chance.uniform(0, seconds),
                chance.randrange(JOBS),
            )
            statuses, starts, ends = trial(folder, moment, victim, train)
            if statuses[victim] != signal.SIGKILL:
                continue  # it had ended before
            same, others = end(folder) == expected, [status for n, status in enumerate(statuses) if n != victim]
            failures += not (same and others == [0] * (JOBS - 1) and ends == [1] * RUNS)
            done += 1
            print(
                f"killed {victim} after {moment:.2f} s: starts {starts}, ends {ends}, {same and 'bit-equal'}",
                flush=True,
            )
    print(f"{options.trials - failures} of {options.trials}: every run ended once, as alone")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()

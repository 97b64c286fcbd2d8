"""Many tiny steps of `training.fit_resumable`: memory, time per step and event files must not grow.

python tests/training/long_run.py              prints both, and fails where they grow
python tests/training/long_run.py --digest     a few steps; prints a digest of the weights as the last line
"""

import argparse
import gc
import hashlib
import json
import os
import pathlib
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from keras_seq import training
from keras_seq.data import StatefulWindows
from keras_seq.models import LSTMConfig
from keras_seq.tracking import Summaries
from keras_seq.training import stateful_training_model

STEPS, PARTS = 20_000, 10


def resident():
    """The memory of this process in MB."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Watch(keras.callbacks.Callback):
    """Memory, and the seconds of a step, ten times on the way."""

    def __init__(self, steps):
        super().__init__()
        self.part, self.seen = steps // PARTS, []

    def on_train_begin(self, logs=None):
        self.since = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        if step % self.part == 0:
            gc.collect()
            now = time.perf_counter()
            self.seen.append((step, resident(), (now - self.since) / self.part))
            self.since = now


def train(folder, steps, **intervals):
    """A tiny LSTM on stateful windows; what was watched, its weights and its last loss."""
    keras.utils.set_random_seed(5)
    ids = np.random.default_rng(0).integers(9, size=400).astype("int32")
    windows = StatefulWindows(ids, batch_size=3, sequence_length=5, reset_prob=0.3, seed=1)
    training_model = stateful_training_model(LSTMConfig(embedding_dim=3, units=4, dropout=0.2).build_model(9), 3, 5)
    config = training.TrainConfig(warmup_steps=5, **intervals)
    training.compile_model(training_model, config, steps)
    watch = Watch(steps)

    def validate():
        return Summaries({"val_loss": 1 / int(training_model.optimizer.iterations)}, {"sample": "abc"})

    logger, _ = training.fit_resumable(
        folder, training_model, windows.stateful_dataset, 15, steps, config, validate, {}, callbacks=[watch]
    )
    return watch.seen, training_model.get_weights(), logger.loss


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digest", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        if given.digest:
            _, weights, loss = train(folder, 40, log_every=10, validate_every=20, checkpoint_every=20)
            digest = hashlib.blake2b(b"".join(weight.tobytes() for weight in weights)).hexdigest()
            print(json.dumps({"loss": loss, "digest": digest}))
            return
        seen, _, _ = train(folder, STEPS, log_every=50, validate_every=1000, checkpoint_every=1000)
        events = [path for path in folder.rglob("events.*")]
        size = sum(path.stat().st_size for path in events) / 1e6
    print(f"{'step':>7} {'MB':>8} {'ms a step':>10}")
    for step, memory, seconds in seen:
        print(f"{step:7,} {memory:8.1f} {1e3 * seconds:10.3f}")
    print(f"{len(events)} event file, {size:.2f} MB")
    # the first part compiles; what is loaded once at the first validation is no growth either
    grown = seen[-1][1] - seen[2][1]
    early, late = (statistics.median(seconds for _, _, seconds in part) for part in (seen[1:5], seen[-4:]))
    print(f"from step {seen[2][0]:,} on: {grown:+.1f} MB; time per step {late / early:.2f} of what it was")
    assert grown < 20, "memory grows"
    assert late < 1.5 * early, "steps become slower"
    assert len(events) == 1, "a start of a run writes one file"
    assert size < 2, "event files are too large"


if __name__ == "__main__":
    main()

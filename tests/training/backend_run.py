"""Train small models for a few steps on any Keras backend, on batches from NumPy; also a process of its own.

KERAS_BACKEND=jax python -m tests.training.backend_run FOLDER     for FOLDER/chain-MODEL, which TensorFlow began
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import warnings
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from keras_seq.models import LSTMConfig, MambaConfig, TransformerConfig
from keras_seq.tracking import Summaries
from keras_seq.training import TrainConfig, compile_model, fit_resumable, optimizers, read_metrics
from keras_seq.training.run_config import environment, versions

VOCABULARY, BATCH, LENGTH, STEPS, MANY_STEPS = 7, 3, 6, 12, 50
MODELS = {
    "lstm": LSTMConfig(embedding_dim=4, units=5),
    "transformer": TransformerConfig(
        embedding_dim=8, num_layers=2, num_heads=2, feed_forward_dim=8, context_length=LENGTH
    ),
    "mamba": MambaConfig(embedding_dim=6, num_layers=1, state_dim=3),
}
STAGES = {"jax": 6, "torch": 9}  # the step at which each backend stops; TensorFlow has the first 3 and the last 3


class Killed(Exception):
    """What ends a process without a word."""


class DiesAt(keras.callbacks.Callback):
    """End the process at a step, from a call of `fit` on."""

    def __init__(self, step, fits=1):
        super().__init__()
        self.step, self.fits = step, fits

    def on_train_begin(self, logs=None):
        self.fits -= 1

    def on_train_batch_end(self, batch, logs=None):
        if self.fits <= 0 and int(self.model.optimizer.step) == self.step:
            raise Killed


def batches(first, last):
    """A batch as a function of the step."""
    for step in range(first, last):
        ids = np.random.default_rng([7, step]).integers(VOCABULARY, size=(BATCH, LENGTH + 1)).astype("int32")
        yield ids[:, :-1], ids[:, 1:]


def train(folder, name, stop=STEPS, dies=None, total=STEPS, dropout=0.0, **options):
    """Train a model from weights of NumPy to a step of so many; return the losses of all its steps and its weights."""
    intervals = {"log_every": 1, "validate_every": total, "checkpoint_every": 2}
    config = TrainConfig(warmup_steps=2, **intervals, **options)
    keras.utils.set_random_seed(0)
    model = dataclasses.replace(MODELS[name], dropout=dropout).build_model(VOCABULARY)
    random = np.random.default_rng(0)
    for weight in model.trainable_variables:
        weight.assign(random.normal(scale=0.4, size=weight.shape))
    with mock.patch.object(optimizers, "_muon_dtype", return_value=None):  # float32: in bfloat16 losses differ by 0.02
        compile_model(model, config, total)
    settings = {"versions": versions(), "environment": environment()}
    callbacks = [] if dies is None else [DiesAt(dies)]
    fit_resumable(folder, model, batches, 1, stop, config, lambda: Summaries({}), settings, callbacks=callbacks)
    weights = [keras.ops.convert_to_numpy(v).copy() for v in model.trainable_variables]
    return [line["loss"] for line in read_metrics(folder, "train")], weights


def check_kill(folder, name, **options):
    """Check that a run that was killed ends as one that was not, to the last bit."""
    losses, weights = train(folder / f"whole-{name}", name, **options)
    with contextlib.suppress(Killed):
        train(folder / f"parts-{name}", name, dies=7, **options)
    again, same = train(folder / f"parts-{name}", name, **options)
    assert again == losses, (name, again, losses)
    for a, b in zip(same, weights, strict=True):
        np.testing.assert_array_equal(a, b)


def main(folder):
    """Go on with TensorFlow's runs, and train each model from the start and with a kill."""
    backend, losses = keras.backend.backend(), {}
    for name in MODELS:
        losses[name], _ = train(folder / f"{backend}-{name}", name, stop=MANY_STEPS, total=MANY_STEPS)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(folder / f"chain-{name}", name, stop=STAGES[backend])
        assert any("another backend" in str(warning.message) for warning in caught), caught
    check_kill(folder / backend, "transformer", use_ema=True, gradient_accumulation_steps=3)
    check_kill(folder / backend, "lstm", optimizer="adamw", weight_decay=0.1, dropout=0.3)
    (folder / f"{backend}.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

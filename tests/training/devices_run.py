"""Train small models on several simulated devices, or as one of several processes; a process of its own, on JAX.

python -m tests.training.devices_run devices FOLDER                 1, 2 and 4 devices, meshes, a run that changes them
python -m tests.training.devices_run process FOLDER [kill STEP]     as KERAS_DISTRIBUTION_* say
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import sys
import warnings

import keras
import numpy as np

from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.kernels.devices import clear_session
from keras_seq.models import LSTMConfig, MambaConfig, TransformerConfig
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import TrainConfig, processes, read_metrics, train_language_model
from keras_seq.training.devices import use_devices
from keras_seq.training.environment import environment
from tests.training.backend_run import DiesAt, Killed

ROWS, LENGTH, STEPS = 8, 6, 50
MODELS = {
    "lstm": LSTMConfig(embedding_dim=4, units=8, dropout=0.1),
    "transformer": TransformerConfig(
        embedding_dim=8, num_layers=2, num_heads=2, feed_forward_dim=8, context_length=LENGTH, dropout=0.1
    ),
    "mamba": MambaConfig(embedding_dim=6, num_layers=1, state_dim=4, dropout=0.1),
}
# With Muon at its usual rate the Transformer is chaotic: weights that differ by 1e-7 give losses that differ by 0.03.
RATES = {"lstm": None, "mamba": None, "transformer": 0.001}
TRAIN = TrainConfig(log_every=1, validate_every=25, checkpoint_every=10, warmup_steps=5, sample_length=4)


def text():
    """A text that a model can learn: each letter follows from the two before it, most of the time."""
    random, letters = np.random.default_rng(0), [0, 1]
    while len(letters) < 3000:
        letters.append((2 * letters[-1] + letters[-2] + (random.random() < 0.1)) % 7)
    return "".join("abcdefg"[letter] for letter in letters)


class Shardings(keras.callbacks.Callback):
    """Note how the variables lie on the devices while they are trained."""

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.step) == 10:
            variables = [*self.model.variables, *self.model.optimizer.variables]
            self.specs = {v.path: [str(a) for a in getattr(v.value.sharding, "spec", ())] for v in variables}


class KillsAt(DiesAt):
    """End the process by the signal of a crash."""

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.step) == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder, name, dies=()):
    """Train a model; return its losses, scores, sample and shardings."""
    clear_session()
    keras.utils.set_random_seed(0)
    tokenizer, train_config = CharacterTokenizer("abcdefg"), dataclasses.replace(TRAIN, learning_rate=RATES[name])
    ids = tokenizer.encode(text())
    model = MODELS[name].build_model(tokenizer.vocabulary_size)
    kind = RandomWindows if name == "transformer" else StatefulWindows
    options = {} if name == "transformer" else {"reset_prob": 0.2}
    windows, shardings = kind(ids, ROWS, LENGTH, **options), Shardings()
    settings = {"environment": environment()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*resumes on another")
        result = train_language_model(
            folder,
            model,
            tokenizer,
            windows,
            text()[:601],
            STEPS,
            train_config,
            settings,
            callbacks=[shardings, *dies],
        )
    return {
        "losses": [line["loss"] for line in read_metrics(folder, "train")],
        "scores": [result["val_loss"], result["val_loss_streaming"]],
        "sample": result["sample"],
        "shardings": getattr(shardings, "specs", {}),
    }


def on_devices(folder):
    """Train on one and several devices; write what came out."""
    results = {}
    for devices in (1, 2, 4):
        keras.distribution.set_distribution(None)
        use_devices(devices)
        for name in MODELS:
            results[f"{name}-{devices}"] = train(folder / f"{name}-{devices}", name)
    for mesh, shard_weights in (("data=2,model=2", False), ("data=2,model=2", True)):
        keras.distribution.set_distribution(None)
        use_devices(mesh=mesh, shard_weights=shard_weights)
        results[f"mesh-{shard_weights}"] = train(folder / f"mesh-{shard_weights}", "transformer")
    for devices, step in ((4, 20), (1, 40), (2, None)):
        keras.distribution.set_distribution(None)
        use_devices(devices)
        with contextlib.suppress(Killed):
            results["lstm-elastic"] = train(folder / "lstm-elastic", "lstm", [DiesAt(step)] if step else [])
    (folder / "results.json").write_text(json.dumps(results))


def as_process(folder, *kill):
    """Train as one of several processes; the first writes what came out."""
    use_devices("all")
    results = {}
    for name in MODELS:
        with processes.private_folder(folder / name) as run:
            dies = [KillsAt(int(kill[1]))] if kill and name == "lstm" else []
            results[name] = train(run, name, dies)
    processes.of_all([0])
    (folder / f"results-{int(not processes.is_first())}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    {"devices": on_devices, "process": as_process}[sys.argv[1]](pathlib.Path(sys.argv[2]), *sys.argv[3:])

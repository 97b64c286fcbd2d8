"""Train small models on several simulated devices, or as one of several processes; a process of its own, on JAX.

python -m tests.training.devices_run devices FOLDER                     1, 2 and 4 devices, meshes, a change of devices
python -m tests.training.devices_run compiled FOLDER                    what XLA compiles for each mesh
python -m tests.training.devices_run process FOLDER lstm mamba          as KERAS_DISTRIBUTION_* say
python -m tests.training.devices_run process FOLDER lstm kill 12 0.1    killed 0.1 s after step 12
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import sys
import threading
import warnings

import keras
import numpy as np

import keras_seq
from keras_seq.callbacks import AttentionMaps, GateSaturation, LossByPosition
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.models import LSTMConfig, MambaConfig, TransformerConfig
from keras_seq.ops.dispatch import clear_session
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import TrainConfig, compile_model, distributed, read_metrics, train_language_model
from keras_seq.training.distributed import use_devices
from keras_seq.training.run_config import environment
from tests.training.backend_run import DiesAt, Killed

ROWS, LENGTH, STEPS = 8, 6, 50
MODELS = {
    "lstm": LSTMConfig(embedding_dim=4, units=8, dropout=0.1),
    "transformer": TransformerConfig(
        embedding_dim=8, num_layers=2, num_heads=2, feed_forward_dim=8, context_length=LENGTH, dropout=0.1
    ),
    "mamba": MambaConfig(embedding_dim=6, num_layers=1, state_dim=4, dropout=0.1),
}
# With Muon at its usual rate the Transformer is chaotic: weights that differ by 1e-7 give losses that differ by 0.03;
# those of Mamba differ by 1.3e-5 then.
RATES = {"lstm": None, "mamba": 0.005, "transformer": 0.001}
WIDE = {
    "config": TransformerConfig(embedding_dim=32, num_layers=2, num_heads=4, feed_forward_dim=64, context_length=16),
    **{"vocabulary_size": 40, "batch_size": 8, "sequence_length": 16},
}
MESHES = {
    "data": ("data=4", False),
    "sharded": ("data=4", True),
    "model": ("data=1,model=4", False),
    "both": ("data=2,model=2", False),
}
TRAIN = TrainConfig(use_ema=True, log_every=1, validate_every=25, checkpoint_every=10, warmup_steps=5, sample_length=4)


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


class KillsAfter(keras.callbacks.Callback):
    """End the process by the signal of a crash some seconds after a step, wherever it is by then."""

    def __init__(self, step, seconds):
        super().__init__()
        self.step, self.seconds = int(step), float(seconds)

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.step) == self.step:
            threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def train(folder, name, dies=()):
    """Train a model; return its losses, scores, texts and shardings."""
    clear_session()
    keras.utils.set_random_seed(0)
    tokenizer, train_config = CharacterTokenizer("abcdefg"), dataclasses.replace(TRAIN, learning_rate=RATES[name])
    ids = tokenizer.encode(text())
    model = MODELS[name].build_model(tokenizer.vocabulary_size)
    kind = RandomWindows if name == "transformer" else StatefulWindows
    options = {} if name == "transformer" else {"reset_prob": 0.2}
    windows, shardings = kind(ids, ROWS, LENGTH, **options), Shardings()
    inputs = ids[: ROWS * LENGTH].reshape(ROWS, LENGTH)
    diagnostics = [LossByPosition(ids[:200], LENGTH), AttentionMaps(inputs, [*text()[:LENGTH]]), GateSaturation(inputs)]
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
            diagnostics=diagnostics,
            callbacks=[shardings, *dies],
        )
    return {
        "losses": [line["loss"] for line in read_metrics(folder, "train")],
        "scores": [result["val_loss"], result["val_loss_streaming"]],
        "score": keras_seq.score(model, tokenizer, text()[:60]).bits_per_character,
        "texts": [result["sample"], *keras_seq.generate(model, tokenizer, ["ab", "c"], max_new_tokens=5, seed=2)],
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


def compiled(folder):
    """Write the program of a training step of a Transformer, as XLA compiles it, for each mesh; on 4 devices."""
    x = np.zeros((WIDE["batch_size"], WIDE["sequence_length"]), "int32")
    for name, (mesh, shard_weights) in MESHES.items():
        keras.distribution.set_distribution(None)
        use_devices(mesh=mesh, shard_weights=shard_weights)
        clear_session()
        model = WIDE["config"].build_model(WIDE["vocabulary_size"])
        compile_model(model, TrainConfig(optimizer="sgd"), 2)
        before = {*folder.iterdir()}
        model.fit(x, x, batch_size=len(x), verbose=0)
        programs = [p for p in {*folder.iterdir()} - before if re.search("train.*after_optimizations.txt", p.name)]
        (folder / f"{name}.txt").write_text(max((p.read_text() for p in programs), key=len))


def as_process(folder, *arguments):
    """Train as one of several processes; each writes what came out."""
    names = [name for name in arguments if name in MODELS]
    kill = arguments[len(names) + 1 :]
    with distributed.noticing_loss():
        use_devices("all")
        results = {}
        for name in names:
            with distributed.private_folder(folder / name) as run:
                results[name] = train(run, name, [KillsAfter(*kill)] if kill else [])
        distributed.of_all([0])
    (folder / f"results-{int(not distributed.is_first())}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    {"devices": on_devices, "compiled": compiled, "process": as_process}[sys.argv[1]](
        pathlib.Path(sys.argv[2]), *sys.argv[3:]
    )

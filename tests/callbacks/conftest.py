"""A folder of two tiny runs with all that callbacks write, one TensorBoard server over it, and one browser."""

import json
import re
import shutil
import subprocess
import sys
import time
import types
import urllib.parse
import urllib.request

import keras
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_seq import callbacks, training
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.tokenizers import CharacterTokenizer
from tests.callbacks.browser import Browser
from tests.conftest import functions_run_eagerly

TEXT = "To be,\tor <not>\n" * 30
VOCABULARY = CharacterTokenizer.from_text(TEXT)
IDS = VOCABULARY.encode(TEXT)
BATCH, LENGTH, STEPS = 3, 8, 8
TOKENS = BATCH * LENGTH
MODELS = {
    "lstm": LSTMConfig(embedding_dim=3, units=4),
    "transformer": TransformerConfig(
        embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=LENGTH
    ),
}


class Killed(Exception):
    pass


class KilledAt(keras.callbacks.Callback):
    """Ends a training as a power failure would."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) >= self.step:
            raise Killed


def train(folder, name, *further):
    keras.utils.set_random_seed(1)
    model = MODELS[name].build_model(VOCABULARY.vocabulary_size)
    sizes = {"batch_size": BATCH, "sequence_length": LENGTH, "seed": 1}
    windows = StatefulWindows(IDS[:300], **sizes) if name == "lstm" else RandomWindows(IDS[:300], **sizes)
    rows = IDS[: 4 * LENGTH].reshape(4, LENGTH)
    settings = training.TrainConfig(
        warmup_steps=2, log_every=2, validate_every=4, checkpoint_every=4, sample_length=20, learning_rate=0.01
    )
    run = folder / f"{name}-seed0"
    training.train_language_model(
        run,
        model,
        VOCABULARY,
        windows,
        VOCABULARY.decode(IDS[300:]),
        STEPS,
        settings,
        {"model": {"name": name}, "seed": 0, "windows": type(windows).__name__},
        diagnostics=[
            callbacks.LossByPosition(IDS[300:], LENGTH),
            callbacks.AttentionMaps(rows, [VOCABULARY.decode([n]) for n in rows[0]]),
            callbacks.GateSaturation(rows),
        ],
        callbacks=[callbacks.EmbeddingProjector(VOCABULARY, run), *further],
    )
    return model


@pytest.fixture(scope="session")
def comparison(tmp_path_factory):
    """The folder of both runs, and the models by name. The LSTM's was killed after a checkpoint, and gone on with."""
    folder = tmp_path_factory.mktemp("comparison")
    with functions_run_eagerly():
        with pytest.raises(Killed):
            train(folder, "lstm", KilledAt(6))
        return types.SimpleNamespace(folder=folder, models={name: train(folder, name) for name in MODELS})


@pytest.fixture
def lines(comparison):
    """The lines of metrics.jsonl of a run, of one split."""

    def lines(run, split):
        path = comparison.folder / run / "metrics.jsonl"
        every = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        return [line for line in every if line["split"] == split]

    return lines


@pytest.fixture
def events():
    """What the event files of a folder hold: (plugin, {step: value}) by tag."""

    def events(folder):
        read = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        read.Reload()
        return {
            tag: (
                read.summary_metadata[tag].plugin_data.plugin_name,
                {event.step: _value(event.tensor_proto) for event in read.Tensors(tag)},
            )
            for tag in read.Tags()["tensors"]
        }

    return events


def _value(tensor):
    import tensorflow as tf

    value = tf.make_ndarray(tensor)
    return value.item() if value.ndim == 0 else value


class Server:
    """Asks a TensorBoard server over HTTP."""

    def __init__(self, url):
        self.url = url

    def bytes(self, path, body=None, **query):
        """What a route answers."""
        url = f"{self.url}data/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def json(self, path, body=None, **query):
        """The same, as JSON."""
        return json.loads(self.bytes(path, body, **query))


@pytest.fixture(scope="session")
def server(comparison):
    """A server over the comparison, as `tensorboard --logdir FOLDER` starts it."""
    options = ("--logdir", str(comparison.folder), "--host", "127.0.0.1", "--port", "0")
    command = [sys.executable, "-m", "tensorboard.main", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = [""]
    while not (found := re.search(r"http://127\.0\.0\.1:\d+/", said[-1])):
        said.append(process.stderr.readline())
        assert said[-1], "".join(said)  # the end: it could not start
    server, deadline = Server(found[0]), time.monotonic() + 60
    while len(server.json("runs")) < len(MODELS):  # it reads in a thread of its own
        assert time.monotonic() < deadline, server.json("runs")
    yield server
    process.terminate()
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium. It draws a page as long as it is open, and ends with the file of its tests."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs Chromium, which is not installed: apt-get install chromium")
    browser = Browser(found, tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def own_fit(tmp_path):
    """Somebody's own `fit` of a model over ids, two epochs of three steps, with callbacks."""

    def own_fit(model, *given):
        x, y = IDS[: 6 * LENGTH].reshape(6, LENGTH), IDS[1 : 6 * LENGTH + 1].reshape(6, LENGTH)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
        return model.fit(x, y, batch_size=2, epochs=2, verbose=0, shuffle=False, callbacks=[*given]).history

    return own_fit


@pytest.fixture
def plain():
    """A functional Keras model without attention or gates, which cannot be stepped."""
    ids = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY.vocabulary_size, 3)(ids)
    x = keras.layers.SimpleRNN(4, return_sequences=True)(x)
    return keras.Model(ids, keras.layers.Dense(VOCABULARY.vocabulary_size)(x), name="plain")


@pytest.fixture
def rows():
    return np.ascontiguousarray(IDS[: 4 * LENGTH].reshape(4, LENGTH))

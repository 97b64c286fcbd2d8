"""With Keras on JAX nothing here imports TensorFlow, installed or not, and the files can be read without it."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = '''
import json
import sys


class NoTensorFlow:
    """Refuses TensorFlow, and notes who asked for it."""

    requests = []

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tensorflow":
            self.requests.append(name)
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, NoTensorFlow())

import keras
import numpy as np

from keras_seq.tracking import Summaries, TokenTensorBoard

(folder,) = sys.argv[1:]
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
board = TokenTensorBoard(folder, tokens_per_step=10)
board.write_settings({"model.name": "dense", "train.learning_rate": 0.5}, model)
model.fit(x, y, batch_size=2, epochs=2, validation_data=(x, y), verbose=0, callbacks=[board])
images, histograms = {"image": np.zeros((3, 2, 3), "uint8")}, {"histogram": np.arange(5)}
board.write(40, Summaries({"val_loss": 1.0}, {"text": "To be"}, images, histograms, {"curve/0": 2.0}))
board.record(50, {"loss": 1.0})
board = TokenTensorBoard(folder)
board.resume_at(40)
board.record(60, {"loss": 1.0})
requests = [*NoTensorFlow.requests]

from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

events = EventAccumulator(folder, {"tensors": 0})
events.Reload()
found = {
    tag: [events.SummaryMetadata(tag).plugin_data.plugin_name, *(event.step for event in events.Tensors(tag))]
    for tag in events.Tags()["tensors"]
}
print(json.dumps([keras.backend.backend(), requests, found]))
'''


@pytest.mark.rare
def test_every_kind_of_event_is_written_resumed_and_read_on_jax_without_tensorflow(tmp_path):
    pytest.importorskip("jax")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    backend, requests, found = json.loads(done.stdout.splitlines()[-1])
    assert (backend, requests) == ("jax", [])
    assert found == {
        "Training/learning_rate": ["scalars", 20, 40],
        "Loss/training": ["scalars", 20, 40, 60],
        "Loss/validation": ["scalars", 20, 40, 40],
        "diagnostics/curve/0": ["scalars", 40],
        "text": ["text", 40],
        "diagnostics/image": ["images", 40],
        "diagnostics/histogram": ["histograms", 40],
        "_hparams_/experiment": ["hparams", 40],
        "_hparams_/session_start_info": ["hparams", 0],
        "settings": ["text", 0],
        "custom_scalars__config__": ["custom_scalars", 40],
    }

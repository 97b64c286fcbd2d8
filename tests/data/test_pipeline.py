"""The same batches on every backend, and no TensorFlow where another backend is used."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from keras_seq import data
from keras_seq.data.pipeline import StepDataset, step_dataset
from keras_seq.data.synthetic import Reversal
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordPieceTokenizer, WordTokenizer

TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer\n" * 9


def datasets():
    """A function of `(start_step, stop_step)` of each kind, over ids of a tokenizer."""
    tokenizers = (CharacterTokenizer, WordTokenizer, BytePairTokenizer, WordPieceTokenizer)
    for kind in tokenizers:
        tokenizer = kind.from_text(TEXT)
        assert kind is WordPieceTokenizer or tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
        yield data.RandomWindows(tokenizer.encode(TEXT), 3, 4, seed=1).dataset
    ids = CharacterTokenizer.from_text(TEXT, oov_token="[UNK]").encode(TEXT + "?")
    masking = data.MaskedLMMaskGenerator(mask_token_id=0, vocabulary_size=int(ids.max()) + 1, mask_selection_rate=0.5)
    windows = data.ShuffledWindows(ids, 2, 5, stride=3)
    yield windows.dataset
    yield lambda *steps: step_dataset(lambda step: masking.batch(step, windows.batch(step)[0]), *steps)
    yield data.SequentialWindows(ids[:100], 4, 5).dataset
    yield data.StatefulWindows(ids, 2, 5, reset_prob=0.5).stateful_dataset
    yield data.ArrayBatches({"x": ids, "y": (ids * 0.5).astype("float32")}, 7).dataset
    yield Reversal(5, 2, 6, batch_size=8).dataset


def leaves(batch):
    """The arrays of a batch, in order."""
    if isinstance(batch, dict):
        batch = tuple(batch[name] for name in sorted(batch))
    return [leaf for part in batch for leaf in leaves(part)] if isinstance(batch, tuple) else [np.asarray(batch)]


def digests():
    """What the batches of 21 steps from step 3 on are, a digest for each kind."""
    for dataset in datasets():
        digest = hashlib.sha256()
        for batch in dataset(3, 24):
            for leaf in leaves(batch):
                digest.update(f"{leaf.dtype} {leaf.shape}".encode() + leaf.tobytes())
        yield digest.hexdigest()


WITHOUT_TENSORFLOW = """
import json, sys
sys.modules["tensorflow"] = None  # to import it is an error
import keras
import numpy as np
from keras_seq.data import StatefulWindows
from keras_seq.tokenizers import characters
from tests.data import test_pipeline

print(json.dumps([*test_pipeline.digests()]))
windows = StatefulWindows(np.arange(200) % 9, batch_size=2, sequence_length=5, reset_prob=0.5)
ids, mask = keras.Input((5,), batch_size=2, dtype="int32"), keras.Input((), batch_size=2, dtype="bool")
x = keras.layers.Embedding(9, 4)(ids) * keras.ops.cast(mask, "float32")[:, None, None]
model = keras.Model([ids, mask], keras.layers.Dense(9)(x))
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(windows.stateful_dataset(7, 9), verbose=0, shuffle=False)
assert np.isfinite(history.history["loss"]).all()
assert int(model.optimizer.iterations) == 2
"""


@pytest.mark.rare
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_without_tensorflow_the_batches_are_the_same_to_the_bit_and_train(backend):
    pytest.importorskip(backend)
    environment = os.environ | {"KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", WITHOUT_TENSORFLOW], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [*digests()]


@pytest.fixture
def other_backend(monkeypatch):
    """Has `step_dataset` create what it creates on other backends."""
    monkeypatch.setattr(data.pipeline.keras.backend, "backend", lambda: "jax")


def test_on_other_backends_a_dataset_is_a_range_of_batches(other_backend):
    dataset = step_dataset(lambda step: (np.array([step]),), 3, 6)
    assert dataset.num_batches == 3
    for _ in range(2):  # once for each epoch
        assert [int(x[0]) for (x,) in dataset] == [3, 4, 5]
    endless = step_dataset(lambda step: (np.array([step]),), 3)
    assert endless.num_batches is None
    assert [int(x[0]) for (x,), _ in zip(endless, range(2), strict=False)] == [3, 4]


def test_shuffled_steps_are_refused():
    dataset = StepDataset(lambda step: step, 3, 9)
    assert [dataset[0], dataset[0], dataset[1], dataset[0], dataset[1], dataset[2]] == [3, 3, 4, 3, 4, 5]
    for index in (2, 1, 4):
        with pytest.raises(ValueError, match=rf"Batch {index} follows batch 2; .*fit\(shuffle=False\)"):
            dataset[index]


@pytest.mark.parametrize("size", [1, 300, 400_000])
def test_calls_of_any_number_of_steps_deliver_the_same(size):
    def batch(step):
        return {"x": np.full((2, size), step), "y": np.array([[step], [0]])}

    for step, found in enumerate(step_dataset(batch, 5, 40).as_numpy_iterator(), 5):
        for name, array in batch(step).items():
            np.testing.assert_array_equal(found[name], array)
    assert step == 39


def test_an_error_in_a_batch_ends_the_dataset():
    def batch(step):
        if step == 20:
            raise ValueError("no batch for step 20")
        return (np.array([step]),)

    with pytest.raises(Exception, match="no batch for step 20"):
        list(step_dataset(batch, 0, 40))

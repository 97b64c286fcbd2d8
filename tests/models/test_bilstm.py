import dataclasses

import keras
import numpy as np
import pytest

from keras_seq import layers
from keras_seq.models import BiLSTMConfig
from tests.conftest import often
from tests.models.conftest import numpy

VOCABULARY = 7
SMALL = BiLSTMConfig(num_tags=3, embedding_dim=4, units=5, num_layers=2, dropout=0.3)


def some_ids(batch=3, length=6, seed=0):
    return np.random.default_rng(seed).integers(1, VOCABULARY, size=(batch, length)).astype("int32")


@often("merge_mode", ["concat", "sum"], ["concat"])
@pytest.mark.parametrize("left", [0, 2, 5], ids=["right", "both sides", "left"])
def test_a_padded_batch_is_its_sequences_alone(randomize, merge_mode, left):
    model = randomize(dataclasses.replace(SMALL, merge_mode=merge_mode).build_model(VOCABULARY))
    ids, padded = some_ids(batch=3, length=3), np.zeros((3, 6), "int32")
    for row, length in enumerate((1, 2, 3)):
        start = min(left, 6 - length)
        padded[row, start : start + length] = ids[row, :length]
    logits = numpy(model(padded))
    for row in range(3):
        real = padded[row] != 0
        np.testing.assert_allclose(logits[row, real], numpy(model(padded[row : row + 1, real]))[0], atol=1e-6)


def test_the_loss_is_the_mean_over_what_is_no_padding(randomize):
    model = randomize(SMALL.build_model(VOCABULARY))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    ids, tags = some_ids(), np.random.default_rng(1).integers(3, size=(3, 6))
    ids[0, 2:] = ids[1, 5:] = 0
    logits = numpy(model(ids))
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_probabilities, tags[..., None], -1)[..., 0][ids != 0].mean()
    assert model.evaluate(ids, tags, verbose=0) == pytest.approx(expected, rel=1e-5)
    other = np.where(ids == 0, (tags + 1) % 3, tags)
    assert model.evaluate(ids, other, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_every_field_reaches_its_layers():
    for config in (SMALL, dataclasses.replace(SMALL, num_layers=1, merge_mode="sum", dropout=0.0, crf=True)):
        model = config.build_model(VOCABULARY)
        both = [layer for layer in model.layers if isinstance(layer, layers.Bidirectional)]
        dropouts = [layer for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
        (embedding,) = (layer for layer in model.layers if isinstance(layer, keras.layers.Embedding))
        found = {
            "num_tags": {model.output.shape[-1]},
            "embedding_dim": {embedding.output_dim},
            "units": {layer.layer.units for layer in both} | {layer.backward_layer.units for layer in both},
            "num_layers": {len(both)},
            "dropout": {layer.rate for layer in dropouts} or {0.0},
            "merge_mode": {layer.merge_mode for layer in both},
            "crf": {any(isinstance(layer, layers.CRF) for layer in model.layers)},
        }
        assert found == {name: {value} for name, value in dataclasses.asdict(config).items()}
        assert len(dropouts) in (0, len(both))
        assert (embedding.input_dim, embedding.mask_zero) == (VOCABULARY, True)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32_in_half_precision(policy):
    model = SMALL.build_model(VOCABULARY, dtype=policy)
    logits = model(some_ids())
    assert (logits.shape, keras.backend.standardize_dtype(logits.dtype)) == ((3, 6, SMALL.num_tags), "float32")
    (embedding,) = (layer for layer in model.layers if isinstance(layer, keras.layers.Embedding))
    assert embedding.compute_dtype == policy.removeprefix("mixed_")
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


def test_dropout_is_on_in_training_only(dropout_acts_in_training_only):
    model = SMALL.build_model(VOCABULARY)
    dropout_acts_in_training_only(lambda training: numpy(model(some_ids(), training=training)))


def test_a_model_from_disk_gives_the_same_logits(randomize, tmp_path):
    model, ids = randomize(dataclasses.replace(SMALL, merge_mode="sum").build_model(VOCABULARY)), some_ids()
    ids[0, 3:] = 0
    model.save(tmp_path / "model.keras")
    revived = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(revived(ids)), numpy(model(ids)))

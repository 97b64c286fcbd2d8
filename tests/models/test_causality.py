import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import TransformerBlock
from keras_seq.models import LANGUAGE_MODELS, assert_causal
from keras_seq.models.config import tiny_config
from tests.conftest import often

VOCABULARY, LENGTH = 7, 9


def small(name, dtype=None):
    """A model as it comes, small: matrices that start at zero are zero."""
    return tiny_config(name, context_length=LENGTH).build_model(VOCABULARY, dtype=dtype)


def model_of(layer):
    """A Keras model whose logits come from what `layer` makes of the embeddings `[B, T, 8]`."""
    ids = keras.Input((None,), dtype="int32")
    return keras.Model(ids, keras.layers.Dense(VOCABULARY)(layer(keras.layers.Embedding(VOCABULARY, 8)(ids))))


def conv(padding):
    return keras.layers.Conv1D(8, 3, padding=padding)


def unmasked():
    return TransformerBlock(num_heads=2, feed_forward_dim=10, causal=False, residual_initializer="zeros")


def three_ahead(x):
    return keras.layers.ZeroPadding1D((0, 3))(keras.layers.Cropping1D((3, 0))(x))


def one_ahead_from_five_on(x):
    return ops.concatenate([conv("causal")(x)[:, :5], conv("same")(x)[:, 5:]], axis=1)


@pytest.mark.parametrize("policy", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.rare)])
@often("name", LANGUAGE_MODELS, ("hybrid",))  # that every one is causal is tested in test_language_model.py
def test_the_models_are_causal(name, policy):
    model = small(name, policy)
    before = model.get_weights()
    assert_causal(model, length=LENGTH)
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)


def test_a_causal_convolution_is_causal():
    assert_causal(model_of(conv("causal")))


@pytest.mark.parametrize(
    ("make", "position", "seen"),
    [
        (lambda: small("bilstm"), 0, 1),
        (lambda: model_of(unmasked()), 0, 1),
        (lambda: model_of(conv("same")), 0, 1),
        (lambda: model_of(three_ahead), 0, 3),
        (lambda: model_of(one_ahead_from_five_on), 5, 6),
    ],
    ids=["bilstm", "no causal mask", "same", "three ahead", "late"],
)
def test_a_leak_is_named_by_its_first_position_and_the_weights_come_back(make, position, seen):
    model = make()
    before = model.get_weights()
    with pytest.raises(AssertionError, match=f"logits at position {position} depend on the id at {seen}\\."):
        assert_causal(model, vocabulary_size=VOCABULARY)
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)


def test_without_its_noise_zeros_would_hide_the_missing_mask():
    """What the case above stands on: the block starts as the identity."""
    model, ids = model_of(unmasked()), np.zeros((1, LENGTH), "int32")
    changed = ids.copy()
    changed[:, -1] = 1
    before, after = (ops.convert_to_numpy(model(v))[:, :-1] for v in (ids, changed))
    np.testing.assert_array_equal(before, after)


def test_the_same_seed_says_the_same():
    messages = set()
    for _ in range(2):
        with pytest.raises(AssertionError) as leak:
            assert_causal(model_of(three_ahead), seed=3)
        messages.add(str(leak.value))
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda: model_of(conv("causal")), {"length": 1}, "length=1; expected at least 2"),
        (lambda: model_of(conv("causal")), {"vocabulary_size": 1}, "vocabulary_size=1; expected at least 2"),
        (lambda: model_of(keras.layers.GlobalAveragePooling1D()), {}, r"expected logits \[B, T, V\]"),
        (lambda: model_of(keras.layers.MaxPooling1D(2)), {}, r"expected logits \[B, T, V\]"),
        (lambda: model_of(keras.layers.Rescaling(0.0)), {}, "depend on no id at all"),
        (lambda: model_of(keras.layers.Rescaling(float("nan"))), {}, "not all finite"),
        (lambda: model_of(keras.layers.Rescaling(float("inf"))), {}, "not all finite"),
    ],
    ids=["one position", "one id", "one vector a text", "half the positions", "constant", "nan", "infinite"],
)
def test_what_nothing_can_be_said_of_is_refused_and_the_weights_come_back(make, options, words):
    model = make()
    before = model.get_weights()
    with pytest.raises(ValueError, match=words):
        assert_causal(model, **options)
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)

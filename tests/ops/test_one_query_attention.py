"""Attention of one query a sequence by sums, on TensorFlow, against the reference."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_seq import layers
from keras_seq.ops.attention import attention, masked_attention
from keras_seq.ops.attention import tensorflow as optimized


@pytest.fixture(params=["parts", "whole"], autouse=True)
def sizes(request, monkeypatch):
    """Small caches are enough, read in parts or as a whole."""
    monkeypatch.setattr(optimized, "MIN_SIZE", 1)
    monkeypatch.setattr(optimized, "MIN_SIZE_OF_PARTS", 1 if request.param == "parts" else 2**30)
    return request.param


def normal(seed, *shape, dtype="float32"):
    return ops.convert_to_tensor(np.random.default_rng(seed).normal(size=shape), dtype)


MASKS = {
    "none": None,
    "a row of all": np.arange(13)[None] < 5,
    "a row of nothing": np.arange(13) < np.array([0, 13, 6])[:, None, None],
    "a mask a head": np.random.default_rng(3).random((3, 4, 1, 13)) < 0.4,
    "the same for all slots": np.array([True, False, True])[:, None, None],
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_values_are_those_of_the_reference(mask, dtype, num_heads):
    q, k = normal(0, 3, 1, 4, 6, dtype=dtype), normal(1, 3, 13, num_heads, 6, dtype=dtype)
    v, bias = normal(2, 3, 13, num_heads, 5, dtype=dtype), None if num_heads == 2 else normal(4, 1, 4, 1, 13)
    mask = None if mask is None else ops.convert_to_tensor(mask)
    sinks = normal(6, 4) if num_heads == 4 else None
    args = q, k, v, mask, bias, None, sinks
    assert masked_attention.twin(*args) is optimized.one_query_attention
    y, expected = optimized.one_query_attention(*args), attention(*args[:5], sinks=sinks)[0]
    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
    y, expected = (ops.convert_to_numpy(ops.cast(x, "float32")) for x in (y, expected))
    np.testing.assert_allclose(y, expected, atol=1e-6 if dtype == "float32" else 0.03)


def test_steps_are_the_positions_of_one_pass_and_too_many_are_nan(randomize, sizes):
    layer = layers.MultiHeadSelfAttention(num_heads=4, num_key_value_heads=2, causal=True)
    x = normal(5, 2, 13, 8)
    expected = layer(x)
    randomize(layer)
    expected, state = ops.convert_to_numpy(layer(x)), layer.get_initial_state(2, capacity=11)

    @tf.function(jit_compile=True)
    def step(x, state):
        return layer(x, state=state, return_state=True)

    for t in range(13):
        y, state = step(x[:, t : t + 1], state)
        y = ops.convert_to_numpy(y)[:, 0]
        if t < 11:
            np.testing.assert_allclose(y, expected[:, t], atol=1e-5)
        else:
            assert np.isnan(y).all()


def test_slots_behind_the_last_that_is_attended_to_are_read_in_the_same_quarter_only(sizes):
    q, k, v = normal(0, 1, 1, 2, 4), normal(1, 1, 12, 2, 4), normal(2, 1, 12, 2, 4)
    mask = ops.arange(12)[None] < 5
    for filled, is_read in ((3, True), (6, sizes == "whole")):  # 5 slots are in the first two quarters, which hold 6
        broken = ops.where(ops.arange(12)[:, None, None] < filled, v, float("nan"))
        y = optimized.one_query_attention(q, k, broken, mask, None, None)
        assert bool(ops.any(ops.isnan(y))) == is_read


@pytest.mark.parametrize("name", ["two queries", "dropout", "float16", "unlike batches"])
def test_other_calls_go_by_the_reference(name):
    q, k = normal(0, 2, 2 if name == "two queries" else 1, 2, 4), normal(1, 2, 12, 2, 4)
    k = k[:1] if name == "unlike batches" else k
    q = ops.cast(q, "float16") if name == "float16" else q
    dropout = keras.layers.Dropout(0.5) if name == "dropout" else None
    assert not masked_attention.twin(q, k, k, None, None, dropout)


def test_gradients_are_those_of_the_reference():
    q, k, v = normal(0, 2, 1, 4, 6), normal(1, 2, 13, 2, 6), normal(2, 2, 13, 2, 6)
    mask = ops.arange(13)[None] < 5

    def ours(q, k, v):
        return ops.sum(ops.sin(optimized.one_query_attention(q, k, v, mask, None, None)))

    def theirs(q, k, v):
        return ops.sum(ops.sin(attention(q, k, v, mask)[0]))

    def gradient(function):
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            y = function(q, k, v)
        return tape.gradient(y, [q, k, v])

    for x, expected in zip(tf.function(gradient)(ours), gradient(theirs), strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(x), ops.convert_to_numpy(expected), atol=1e-6)

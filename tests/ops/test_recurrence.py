import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq.ops.recurrence import recurrence
from keras_seq.ops.recurrence import tensorflow as optimized


def cell(z, state):
    """A cell whose state has two parts, both of which look at both."""
    h, c = state
    c = tf.tanh(z[:, :4] + c - h)
    return tf.sin(z[:, 4:] + 0.5 * h) * c, c


def run(function, length, masked):
    """The outputs, and the gradients of a weighted sum of them."""
    random = np.random.default_rng(length)
    z, h, c = (tf.constant(random.normal(size=s)) for s in ((3, length, 8), (3, 4), (3, 4)))
    mask = tf.constant(random.random(size=(3, length)) < 0.6) if masked else None
    with tf.GradientTape() as tape:
        tape.watch([z, h, c])
        y, state = function(cell, z, (h, c), mask)
        loss = sum(tf.reduce_sum(v * random.normal(size=v.shape)) for v in (y, *state))
    return [y, *state, *tape.gradient(loss, [z, h, c])]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("length", "jit_compile"),
    [(1, False), (4, False), (7, False), pytest.param(4, True, marks=pytest.mark.rare), (7, True)],
)
def test_values_and_gradients_are_those_of_the_reference(monkeypatch, length, masked, jit_compile):
    monkeypatch.setattr(optimized, "MAX_UNROLLED", 5)
    with keras_seq.ops.reference():
        expected = run(recurrence, length, masked)
    got = tf.function(lambda: run(optimized.unrolled_or_looped, length, masked), jit_compile=jit_compile)()
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


@pytest.mark.parametrize(
    ("length", "jit_compile"), [(1, False), (7, False), pytest.param(1, True, marks=pytest.mark.rare), (7, True)]
)
def test_a_length_that_is_not_known_can_be_differentiated(length, jit_compile):
    random = np.random.default_rng(length)
    z, h, c = (tf.constant(random.normal(size=s)) for s in ((3, length, 8), (3, 4), (3, 4)))

    def gradients(function, z):
        with tf.GradientTape() as tape:
            tape.watch(z)
            y, _ = function(cell, z, (h, c), None)
            loss = tf.reduce_sum(y * y)
        return tape.gradient(loss, z)

    compiled = tf.function(lambda z: gradients(optimized.unrolled_or_looped, z), jit_compile=jit_compile)
    unknown = compiled.get_concrete_function(tf.TensorSpec([3, None, 8], tf.float64))
    with keras_seq.ops.reference():
        expected = gradients(recurrence, z)
    np.testing.assert_allclose(unknown(z), expected, atol=1e-10)


def test_the_predicate_takes_all_but_no_position():
    assert optimized.has_steps(cell, tf.zeros((2, 3, 8)), None)
    assert not optimized.has_steps(cell, tf.zeros((2, 0, 8)), None)

"""What every layer with a state promises about it."""

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_seq import layers
from tests.layers.test_state_laws import SINGLE

each = pytest.mark.parametrize("make", SINGLE.values(), ids=SINGLE)


@each
@pytest.mark.parametrize("given", ["float32", "bfloat16"])
def test_a_state_of_another_dtype_is_taken_and_leaves_in_its_own(make, given):
    layer = make(dtype="mixed_bfloat16")
    x = np.random.default_rng(0).normal(size=(2, 3, 6)).astype("float32")
    layer.build(x.shape)
    own = layer.get_initial_state(2)
    _, state = layer(x, state=tree.map_structure(lambda part: ops.cast(part, given), own), return_state=True)
    for part, start in zip(tree.flatten(state), tree.flatten(own), strict=True):
        assert part.dtype == start.dtype


@each
def test_a_sequence_of_no_position_is_refused(make):
    layer = make()
    layer.build((2, 3, 6))
    with pytest.raises(ValueError, match="at least one position"):
        layer(np.zeros((2, 0, 6), "float32"))


def test_under_float64_the_memory_is_float64():
    if keras.backend.backend() == "jax":
        pytest.skip("JAX knows float64 only on request")
    for layer in (
        layers.LSTM(3, dtype="float64", return_sequences=True),
        layers.GRU(3, dtype="float64", return_sequences=True),
        layers.MinGRU(3, dtype="float64", return_sequences=True),
    ):
        layer.build((2, 3, 4))
        parts = tree.flatten(layer.get_initial_state(2))
        assert {keras.backend.standardize_dtype(part.dtype) for part in parts} == {"float64"}


class Twice(layers.ExplicitState):
    """A user's layer, which puts out another width and says so by its call alone."""

    def build(self, inputs_shape):
        self._width = inputs_shape[-1]

    def get_initial_state(self, batch_size):
        return ops.zeros((batch_size, self._width), self.state_dtype)

    def call(self, inputs, state=None, mask=None, return_state=False):
        x, state, mask = self.prepare_inputs(inputs, state, mask)
        y = ops.concatenate([x, x], axis=-1)
        return (y, state) if return_state else y


class Counts(layers.ExplicitState):
    """A user's layer, whose state is a list of a tensor and a scalar."""

    def get_initial_state(self, batch_size):
        return [ops.zeros((batch_size, 1), self.state_dtype), ops.zeros((), "int32")]

    def call(self, inputs, state=None, mask=None, return_state=False):
        x, (total, count), mask = self.prepare_inputs(inputs, state, mask)
        state = [total + ops.sum(x, axis=(1, 2))[:, None], count + ops.shape(x)[1]]
        return (x, state) if return_state else x


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_users_state_may_be_a_list_with_a_scalar_also_where_the_batch_is_unknown(batch_size):
    layer, x = Counts(), np.ones((batch_size, 3, 4), "float32")
    _, state = layer(x, return_state=True)
    forward = lambda x, total, count: layer(x, state=[total, count], return_state=True)  # noqa: E731
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        shapes = [(None, 3, 4), (None, 1), ()]
        forward = tf.function(
            forward, [tf.TensorSpec(s, d) for s, d in zip(shapes, ("float32", "float32", "int32"), strict=True)]
        )
    y, (total, count) = forward(ops.convert_to_tensor(x), *state)
    np.testing.assert_array_equal(ops.convert_to_numpy(y), x)
    np.testing.assert_array_equal(ops.convert_to_numpy(total), np.full((batch_size, 1), 24))
    assert int(count) == 6


def test_a_users_layer_needs_no_compute_output_shape():
    inputs = keras.Input((3, 4))
    outputs = keras.layers.Dense(5)(Twice()(inputs))
    x = np.ones((2, 3, 4), "float32")
    assert tuple(keras.Model(inputs, outputs)(x).shape) == (2, 3, 5)
    y, state = Twice()(inputs, return_state=True)
    assert (y.shape, state.shape) == ((None, 3, 8), (None, 4))

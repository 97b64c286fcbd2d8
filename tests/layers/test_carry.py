import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import LSTM, Carry, MultiHeadSelfAttention


def make(batch_size=3):
    layer = LSTM(4)
    carry = Carry(layer, batch_size)
    carry.build((batch_size, 5, 2))
    return layer, carry


def numpy_state(carry):
    return [ops.convert_to_numpy(variable) for variable in carry.state]


def batches(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 3, 5, 2)).astype("float32")


def test_two_batches_are_one_long_one():
    layer, carry = make()
    first, second = batches(2)
    got = [ops.convert_to_numpy(carry(x, training=True)) for x in (first, second)]
    whole = layer(np.concatenate([first, second], axis=1))
    np.testing.assert_allclose(np.concatenate(got, axis=1), ops.convert_to_numpy(whole), atol=1e-6)


def test_fresh_rows_start_from_zero_and_the_others_go_on():
    layer, carry = make()
    first, second = batches(2)
    carry(first, training=True)
    y = ops.convert_to_numpy(carry(second, np.array([False, True, False]), training=True))
    whole = ops.convert_to_numpy(layer(np.concatenate([first, second], axis=1)))[:, 5:]
    alone = ops.convert_to_numpy(layer(second))
    np.testing.assert_allclose(y[[0, 2]], whole[[0, 2]], atol=1e-6)
    np.testing.assert_allclose(y[1], alone[1], atol=1e-6)


def test_outside_of_training_the_carry_is_neither_read_nor_written():
    layer, carry = make()
    first, second = batches(2)
    carry(first, training=True)
    before = numpy_state(carry)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(carry(second, training=False)), ops.convert_to_numpy(layer(second))
    )
    assert carry(np.zeros((7, 5, 2), "float32"), training=False).shape == (7, 5, 4)
    for was, now in zip(before, numpy_state(carry), strict=True):
        np.testing.assert_array_equal(was, now)


def test_evaluate_and_predict_in_between_change_nothing_in_fit():
    def train(disturbed):
        keras.utils.set_random_seed(1)
        x = keras.Input((5, 2), batch_size=3)
        model = keras.Model(x, keras.layers.Dense(2)(Carry(LSTM(4), 3)(x)))
        model.compile("sgd", "mse")
        losses = []
        for data in batches(3):
            losses.append(model.fit(data, data, batch_size=3, shuffle=False, verbose=0).history["loss"])
            if disturbed:
                other = batches(1, seed=9)[0]
                model.evaluate(other, other, batch_size=3, verbose=0)
                model.predict(other, batch_size=3, verbose=0)
        return losses

    assert train(disturbed=True) == train(disturbed=False)


def test_reset_puts_all_rows_back():
    _, carry = make()
    x = batches(1)[0]
    carry(x, training=True)
    carry.reset()
    for part in numpy_state(carry):
        np.testing.assert_array_equal(part, 0.0)


def test_the_state_is_saved_with_the_training_model_and_not_with_the_layer(tmp_path):
    x = keras.Input((5, 2), batch_size=3)
    layer = LSTM(4)
    model = keras.Model(x, Carry(layer, 3)(x))
    carry = model.layers[-1]
    carry(batches(1)[0], training=True)
    assert all((part != 0).any() for part in numpy_state(carry))
    model.save(tmp_path / "model.keras")
    revived = keras.models.load_model(tmp_path / "model.keras")
    for was, now in zip(numpy_state(carry), numpy_state(revived.layers[-1]), strict=True):
        np.testing.assert_array_equal(was, now)
    assert len(layer.weights) == 3


def test_a_config_can_be_used_twice():
    _, carry = make()
    config = carry.get_config()
    for _ in range(2):
        again = Carry.from_config(config)
        assert (again.batch_size, again.layer.units) == (3, 4)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="batch_size=0"):
        Carry(LSTM(4), 0)
    with pytest.raises(ValueError, match="initial_state"):
        Carry(keras.layers.Dense(4), 3)
    attention = MultiHeadSelfAttention(num_heads=1, causal=True)
    attention.build((3, 5, 2))
    attention.initial_state = functools.partial(attention.initial_state, capacity=5)
    with pytest.raises(ValueError, match="has no rows"):
        Carry(attention, 3).build((3, 5, 2))
    _, carry = make()
    with pytest.raises(ValueError, match="a batch of 2 rows; expected batch_size=3"):
        carry(np.zeros((2, 5, 2), "float32"), training=True)

"""No GPU is needed: where there is none Keras's layers compute the same without cuDNN."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops import dispatch
from keras_seq.ops.fused_rnn import fused_rnn
from tests.ops.compare import twins_called

X = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")


@pytest.fixture
def taken(monkeypatch):
    """The kinds of layers that were handed to Keras, as if there were a GPU."""
    monkeypatch.setattr(dispatch, "on_cpu", lambda: False)
    with twins_called(fused_rnn) as calls:
        yield calls


def kinds(taken):
    return [args[0] for _, args in taken]


def random_weights(layer):
    layer.build(X.shape)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(size=w.shape, scale=0.5) for w in layer.weights])
    return layer


def everything(layer, state):
    """Output, state and all gradients of a weighted sum of them."""
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch([x, *tf.nest.flatten(state)])
        outputs = tf.nest.flatten(layer(x, state=state, training=True, return_state=True))
        loss = sum(tf.reduce_sum(tf.sin(n * out)) for n, out in enumerate(outputs, 1))
    return [*outputs, *tape.gradient(loss, [x, *tf.nest.flatten(state), *(w.value for w in layer.trainable_weights)])]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU])
def test_keras_layer_on_the_same_weights_gives_the_same(taken, kind, compiled):
    layer = random_weights(kind(6))
    random = np.random.default_rng(2)
    state = tf.nest.map_structure(
        lambda part: tf.constant(random.normal(size=part.shape), part.dtype), layer.get_initial_state(3)
    )
    with keras_seq.ops.reference():
        expected = everything(layer, state)
    assert not taken
    got = (tf.function(everything) if compiled else everything)(layer, state)
    assert kinds(taken) == [kind.__name__.lower()]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_layer_has_no_weights_more_for_it(taken):
    layer = random_weights(layers.LSTM(6, return_sequences=True))
    before = [w.path for w in layer.weights]
    layer(X, training=True)
    assert taken
    assert [w.path for w in layer.weights] == before


def test_what_cudnn_cannot_do_is_done_as_ever(taken):
    layers.LSTM(6, return_sequences=True)(X)  # not in training
    layers.LSTM(6, return_sequences=True)(X, training=True, mask=np.ones((3, 5), bool))
    layers.LSTM(6, recurrent_dropout=0.5, return_sequences=True)(X, training=True)
    layers.LSTM(6, dtype="mixed_bfloat16", return_sequences=True)(X, training=True)
    layers.GRU(6, reset_after=False, return_sequences=True)(X, training=True)
    layers.SimpleRNN(6, return_sequences=True)(X, training=True)
    layers.LayerNormLSTM(6, return_sequences=True)(X, training=True)
    assert not taken
    layers.LSTM(6, dropout=0.5, return_sequences=True)(X, training=True)
    assert kinds(taken) == ["lstm"]


def test_a_model_trains_through_it(taken):
    model = keras.Sequential([layers.LSTM(6, return_sequences=True), layers.GRU(3, return_sequences=True)])
    model.compile("sgd", "mse")
    loss = model.fit(X, np.ones((3, 5, 3)), epochs=2, verbose=0).history["loss"]
    assert loss[1] < loss[0]
    assert {"lstm", "gru"} == {*kinds(taken)}


def test_keras_does_not_compile_by_xla_what_calls_it(taken):
    """Keras decides when a model is compiled, before its layers are called."""
    for kind in (layers.LSTM, layers.GRU):
        model = keras.Sequential([kind(3)])
        with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
            model.compile("sgd", "mse", jit_compile=True)
        for options in ({"use_cudnn": False}, {"dtype": "mixed_bfloat16"}, {"activation": "relu"}):
            assert kind(3, **options).supports_jit


def test_here_there_is_no_gpu():
    assert dispatch.on_gpu() == bool(tf.config.list_physical_devices("GPU"))

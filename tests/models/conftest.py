"""What the tests of models share: a block of ours, written with Keras's own layers."""

import keras
import numpy as np
import pytest
from keras import ops


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float64"))


def copy(ours, theirs):
    """Ours are matrices; Keras's have an axis for the heads."""
    for source, target in zip(ours, theirs, strict=True):
        target.assign(ops.reshape(source, target.shape))


def attention_of(ours, shape):
    theirs = keras.layers.MultiHeadAttention(ours.num_heads, shape[-1] // ours.num_heads)
    theirs.build(shape, shape)
    order = ("query", "key", "value", "attention_output")
    weights = [v for name in order for v in theirs.trainable_weights if v.path.split("/")[-2] == name]
    copy(ours.trainable_weights, weights)
    return theirs


@pytest.fixture
def by_keras():
    """From a built block with the normalization behind each part to a function of the same weights."""

    def by_keras(block):
        shape = (None, None, block.self_attention_layer.query_dense.kernel.shape[0])
        self_attention = attention_of(block.self_attention_layer, shape)
        cross_attention = attention_of(block.cross_attention_layer, shape) if block.cross_attention else None
        hidden = keras.layers.Dense(block.feed_forward_dim, activation=block.activation)
        output = keras.layers.Dense(shape[-1])
        hidden.build(shape), output.build((None, None, block.feed_forward_dim))
        copy(block.feed_forward_layer.trainable_weights, [*hidden.weights, *output.weights])
        norms = [keras.layers.LayerNormalization(epsilon=1e-5) for _ in block.sublayers]
        for ours, theirs in zip(block.normalizations, norms, strict=True):
            theirs.build(shape)
            copy(ours.weights, theirs.weights)

        def function(x, real, context=None, context_real=None):
            y = self_attention(x, x, attention_mask=real[:, None], use_causal_mask=block.causal)
            x = norms[0](x + y)
            if context is not None:
                x = norms[1](x + cross_attention(x, context, attention_mask=context_real[:, None]))
            return norms[-1](x + output(hidden(x)))

        return function

    return by_keras


def losses_of_training(model, inputs, targets, steps, learning_rate, sample_weight=None):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(learning_rate), loss, run_eagerly=True)
    return [float(model.train_on_batch(inputs, targets, sample_weight=sample_weight)) for _ in range(steps)]


@pytest.fixture
def dropout_acts_in_training_only():
    """Checks `run(training)`, which gives an array."""

    def check(run):
        np.testing.assert_array_equal(run(False), run(False))
        assert (run(True) != run(True)).any()

    return check

"""Many small operations as one program: compiled by XLA, they are one loop over memory where TensorFlow has one each.

A pointwise function keeps its input and nothing else; its gradient computes the rest once more, which costs less than
memory does.
"""

import functools

import keras
import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

MIN_FUSED_ELEMENTS = 2**19  # values; below, starting a program costs more than it gives


def fused(function):
    """The same function, compiled by XLA if it is about to be traced for a CPU.

    Args:
        function: of tensors, or lists of them; it may assign variables. Large matmuls in bfloat16 do not belong in it:
            XLA is slow at them.
    """
    if tf.executing_eagerly() or not on_cpu():
        return function  # compiled anew at every call, it would cost more than it gives
    return tf.function(function, jit_compile=True, autograph=False)


def supports(function, x):
    """Whether `run` takes these arguments: many values, and no layer, which may have weights."""
    return not isinstance(function, keras.layers.Layer) and large(x)


def large(x) -> bool:
    """Whether x has many values, how many is known, inside a function that is being traced for a CPU."""
    known = x.shape.num_elements()
    return known is not None and known >= MIN_FUSED_ELEMENTS and not tf.executing_eagerly() and on_cpu()


def apply(function, x):
    """`function(x)`, where function works on each value, or each row, of x by itself and has no weights."""

    def widened(x):  # so that bfloat16 is rounded once, not after every operation
        return tf.cast(function(tf.cast(x, tf.float32) if x.dtype.size < 4 else x), x.dtype)

    def slope(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = widened(x)
        return tape.gradient(y, x, output_gradients=dy)

    @tf.custom_gradient
    def forward(x):
        return fused(widened)(x), functools.partial(fused(slope), x)

    return forward(x)

"""Compile many small operations into one XLA program, which is one loop over memory instead of one per operation.

A pointwise function stores only its input for the gradient, which recomputes the rest: that is cheaper than memory
traffic.
"""

import functools

import keras
import tensorflow as tf

from keras_seq.kernels.devices import on_cpu

MIN_FUSED_ELEMENTS = 2**19  # numbers; below, starting an XLA program costs more than it saves


def xla_compiled(function):
    """Return the function, compiled by XLA if it is about to be traced for a CPU.

    Args:
        function: A function of tensors or lists of tensors; it may assign variables. It should not contain large
            matmuls in bfloat16, which are slow in XLA.

    Returns:
        A function of the same arguments.
    """
    if tf.executing_eagerly() or not on_cpu():
        return function  # eagerly it would be compiled again at every call
    return tf.function(function, jit_compile=True, autograph=False)


def supports(function, x) -> bool:
    """Return whether x is large and the function is not a layer, which may have weights.

    Args:
        function: A pointwise or row-wise function.
        x: A tensor.
    """
    return not isinstance(function, keras.layers.Layer) and is_large(x)


def is_large(x) -> bool:
    """Return whether x has a known and large number of elements, in a function that is being traced for a CPU."""
    size = x.shape.num_elements()
    return size is not None and size >= MIN_FUSED_ELEMENTS and not tf.executing_eagerly() and on_cpu()


def apply(function, x):
    """Compute `function(x)`.

    Args:
        function: A function without weights that maps each element, or each row, of x separately.
        x: A tensor.

    Returns:
        A tensor of the shape and dtype of x.
    """
    in_float32, vjp = _programs(function)

    @tf.custom_gradient
    def forward(x):
        return in_float32(x), functools.partial(vjp, x)

    return forward(x)


@functools.lru_cache(maxsize=64)
def _programs(function):
    """Return a pointwise function and its vector-Jacobian product, compiled once for layers of the same shape."""

    def in_float32(x):  # bfloat16 is rounded once, not after every operation
        return tf.cast(function(tf.cast(x, tf.float32) if x.dtype.size < 4 else x), x.dtype)

    def vjp(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = in_float32(x)
        return tape.gradient(y, x, output_gradients=dy)

    return [tf.function(program, jit_compile=True, autograph=False) for program in (in_float32, vjp)]

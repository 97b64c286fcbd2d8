"""Compile a function of tensors that needs no gradients, for the Keras backend at hand.

TensorFlow    tf.function, traced once for each structure and shape of the arguments, by XLA where `jit_compile` is set
JAX           jax.jit of (variables of the model, arguments), so that every call computes with the present weights;
              under a Keras distribution every device, and so every process, has the whole result
torch         the function itself, without gradients: torch.compile breaks at every layer of Keras, takes a minute for
              a step of a model, and the step is slower
"""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops, tree


def compiled(function: Callable, model, jit_compile: bool = False, reduce_retracing: bool = False) -> Callable:
    """Return a compiled version of a function.

    Args:
        function: A function of nests of tensors, returning a nest of tensors. It uses the model and `keras.ops`.
        model: The model whose variables the function reads; none of them is changed.
        jit_compile: Whether TensorFlow compiles the function by XLA; JAX always does.
        reduce_retracing: Whether TensorFlow traces the function for any size of an axis once it has seen two.

    Returns:
        A function of the same arguments, all of them positional, with NumPy arrays in place of tensors if need be.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=jit_compile or None, reduce_retracing=reduce_retracing)
    return (_jax if backend == "jax" else _torch)(function, model)


def _jax(function, model):
    import jax

    def with_variables(values, *args):
        with keras.StatelessScope(state_mapping=zip(_variables(model), values, strict=True)):
            return function(*args)

    distribution = keras.distribution.distribution()
    whole = distribution and keras.distribution.TensorLayout((), distribution.device_mesh).backend_layout
    jitted = jax.jit(with_variables, out_shardings=whole)
    return lambda *args: jitted([variable.value for variable in _variables(model)], *args)


def _torch(function, model):
    import torch

    def without_gradients(*args):
        with torch.no_grad():
            return function(*tree.map_structure(_tensor, args))

    return without_gradients


def _variables(model):
    return getattr(model, "variables", [])


def _tensor(x):
    return ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x

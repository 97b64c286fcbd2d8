"""Compute what a layer returns for symbolic inputs, without a trace of its call where shape and dtype are known."""

import contextlib

import keras

from keras_seq import checks

MASKS = ("mask", "inputs_mask")


def output_spec(layer, inputs, *args, **kwargs):
    """Return the shapes and dtypes of `layer(inputs, *args, **kwargs)`, for a layer of one output in its compute dtype.

    Known without a trace is the output for a sequence of at least one position, alone or with a boolean mask `[B, T]`,
    of a layer with `compute_output_shape`.
    """
    checks.dense("inputs", inputs)
    given = {name for name, value in kwargs.items() if value is not None and value is not False}
    masks = [kwargs[name] for name in given.intersection(MASKS)]
    fits = all(mask.dtype == "bool" and tuple(mask.shape) == tuple(inputs.shape[:2]) for mask in masks)
    if not args and given <= {*MASKS, "training"} and fits and 0 not in inputs.shape[1:2]:
        with contextlib.suppress(NotImplementedError):  # a user's layer needs no compute_output_shape
            shape = layer.compute_output_shape(inputs.shape)
            if not any(isinstance(size, tuple) for size in shape):  # one tensor
                return keras.KerasTensor(shape, dtype=layer.compute_dtype)
    return keras.Operation.compute_output_spec(layer, inputs, *args, **kwargs)

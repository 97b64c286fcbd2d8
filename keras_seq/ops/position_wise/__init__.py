"""Compute each position by itself: x W + b, activations, normalization, rows E[ids] of a table, cross-entropies."""

import keras
from keras import ops

from keras_seq.ops.dispatch import export_format, exportable, optimized


@optimized
def dense(x, kernel, bias):
    """Compute x W + b for `x [..., D]`, `kernel [D, W]` and `bias [W]` or None: `[..., W]`."""
    if export_format() == "onnx" and len(x.shape) == 3:  # tf2onnx loses the Reshape that Keras puts here before another
        kernel = ops.expand_dims(kernel, 0)
    x = ops.matmul(x, kernel)
    return x if bias is None else add_bias(x, bias)


@optimized
def add_bias(x, bias):
    """Add `bias [W]` to `x [..., W]`."""
    return ops.add(x, bias)


@optimized
def activate(function, x):
    """Compute `function(x)`, of each element or each row of x separately."""
    return exportable(function)(x)


@optimized
def projects_table(ids, rows: int, width: int) -> bool:
    """Return whether E W, once for all rows of E `[V, D]`, and then rows of it, are faster than (E[ids]) W."""
    return False


@optimized
def rows_of_table(ids, table):
    """Return the rows of `table [V, W]` for `ids [B, T]`: `[B, T, W]`, NaN where an id is out of range."""
    is_valid = ops.logical_and(ids >= 0, ids < table.shape[0])
    return ops.where(ops.expand_dims(is_valid, -1), ops.take(table, ops.where(is_valid, ids, 0), axis=0), float("nan"))


@optimized
def cross_entropy(targets, logits):
    """Compute the cross-entropy of each target of `targets [...]`, given `logits [..., V]`: `[...]`, in nats."""
    return ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)


@optimized
def normalize(x, gamma, beta, epsilon: float, centered: bool):
    """Normalize the last axis of `x [..., D]`, with `gamma [D]` and `beta [D]` or None; the mean counts if centered."""
    if export_format() is not None:  # torch writes neither of Keras's two to ONNX
        x = x - ops.mean(x, axis=-1, keepdims=True) if centered else x
        x = x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + epsilon) * gamma
        return x if beta is None else x + beta
    if centered:
        return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)
    return ops.rms_normalization(x, gamma, axis=-1, epsilon=epsilon)


if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.position_wise.tensorflow
elif keras.backend.backend() == "torch":
    import keras_seq.ops.position_wise.torch  # noqa: F401  (binds the twins)

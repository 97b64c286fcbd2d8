"""A dense layer, y = activation(x W + b), rows of a table E[ids], and the cross-entropy of logits."""

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

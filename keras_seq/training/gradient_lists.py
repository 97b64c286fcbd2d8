"""Measure, scale and add the gradients of all weights, and change all weights, in one operation where there is one."""

from keras import ops

from keras_seq import kernels


def dense(gradient, shape: tuple[int, ...]):
    """Return a dense gradient of known shape; TensorFlow gives an embedding's as one row per id of the batch.

    Args:
        gradient: Gradient of a weight, or None.
        shape: Shape of the weight.
    """
    if hasattr(gradient, "dense_shape"):
        gradient = ops.zeros(shape, gradient.dtype) + gradient
    return gradient if gradient is None or gradient.shape == shape else ops.reshape(gradient, shape)


def sums_of_squares(gradients: list):
    """Return the sum of squares of each gradient in float32 `[N]`, 0 for None.

    Args:
        gradients: Dense gradients, N of them.
    """
    return kernels.dispatch("sums_of_squares", _sums_one_by_one, gradients)(gradients)


def _sums_one_by_one(gradients):
    return ops.stack([ops.zeros(()) if g is None else ops.sum(ops.square(ops.cast(g, "float32"))) for g in gradients])


def scale_all(gradients: list, scale) -> list:
    """Return all gradients times one factor, each in its dtype.

    Args:
        gradients: Dense gradients; None stays None.
        scale: A number or a scalar.
    """
    return kernels.dispatch("scale_all", _scale_one_by_one, gradients, scale)(gradients, scale)


def _scale_one_by_one(gradients, scale):
    return [None if g is None else g * ops.cast(scale, g.dtype) for g in gradients]


def weighted_sums(tensors: list, others: list, factor) -> list:
    """Return `tensor + factor * other` for each pair.

    Args:
        tensors: Tensors.
        others: As many tensors, of their shapes and dtypes.
        factor: A number.
    """
    return kernels.dispatch("weighted_sums", _sum_pairs, tensors, others, factor)(tensors, others, factor)


def _sum_pairs(tensors, others, factor):
    return [x + factor * y for x, y in zip(tensors, others, strict=True)]


def add_all(variables: list, tensors: list, decay=1.0, factor=1.0) -> None:
    """Assign `decay * variable + factor * tensor` to each variable.

    Args:
        variables: Keras variables.
        tensors: As many tensors, of their shapes.
        decay: A number or a scalar.
        factor: A number or a scalar.
    """
    args = variables, tensors, decay, factor
    kernels.dispatch("add_all", _add_one_by_one, *args)(*args)


def _add_one_by_one(variables, tensors, decay, factor):
    for variable, tensor in zip(variables, tensors, strict=True):
        old_share, new_share, new = (ops.cast(x, variable.dtype) for x in (decay, factor, tensor))
        variable.assign(old_share * variable + new_share * new)

"""Approximate the semi-orthogonal matrix nearest to a matrix, its polar factor, by matrix products alone.

    X <- X / |X X^T|^(1/2);    X <- a_k X + (b_k X X^T + c_k (X X^T)^2) X    for k = 1, 2, ...

Each step maps every singular value s to a_k s + b_k s^3 + c_k s^5. Newton-Schulz iterations repeat one such polynomial;
the Polar Express (Amsel et al., 2025, arXiv:2505.16932) takes for each step the one that brings all of [0.001, 1]
nearest to 1, given the steps before it. Dividing by the root of the norm of X X^T, which the first step computes
anyway, instead of the norm of X leaves the singular values larger, by a factor of up to rows^(1/4), and saves a step.
"""

import keras
from keras import ops

from keras_seq import kernels
from keras_seq.ops.dispatch import on_cpu

# Algorithm 1 of the paper, with its safety factor of 1.01 against rounding in bfloat16. The last one may be repeated.
COEFFICIENTS = [
    (a / 1.01, b / 1.01**3, c / 1.01**5)
    for a, b, c in (
        (8.28721201814563, -23.595886519098837, 17.300387312530933),
        (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
        (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
        (3.3184196573706015, -2.488488024314874, 0.51004894012372),
        (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
        (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
        (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    )
]

MIN_ROWS = 256  # of matrices that TensorFlow multiplies together on a CPU; of smaller ones it has several at once


def wide_and_normalized(x, dtype: str):
    """Return matrices, transposed if they are tall, divided by their Frobenius norms: no singular value is above 1.

    Args:
        x: `[..., rows, columns]`.
        dtype: Dtype of the result.

    Returns:
        `[..., rows, columns]`, or `[..., columns, rows]` if there are more rows than columns.
    """
    x = x if x.shape[-2] <= x.shape[-1] else ops.swapaxes(x, -1, -2)
    return ops.cast(x / (ops.norm(x, axis=(-2, -1), keepdims=True) + 1e-7), dtype)


def polar_express(x, ns_steps: int):
    """Move all singular values of matrices near 1.

    Args:
        x: `[..., rows, columns]` with `rows <= columns`, of `wide_and_normalized`. All products have its dtype.
        ns_steps: Number of steps, at least 1.

    Returns:
        `[..., rows, columns]`, in the dtype of x.
    """
    coefficients = (COEFFICIENTS + COEFFICIENTS[-1:] * ns_steps)[:ns_steps]
    return kernels.dispatch("polar_express", _polar_express, x, coefficients)(x, coefficients)


def _polar_express(x, coefficients):
    for k, (a, b, c) in enumerate(coefficients):
        gram = ops.matmul(x, ops.swapaxes(x, -1, -2))
        square = ops.matmul(gram, gram)
        if k == 0:  # 1 / |X X^T|^(1/2), from the trace of (X X^T)^2; the norm is at least rows^(-1/2), unless x is zero
            squared_norm = ops.sum(ops.cast(ops.diagonal(square, axis1=-2, axis2=-1), "float32"), axis=-1)
            factor = ops.maximum(squared_norm, 1e-12)[..., None, None] ** -0.25
            a, b, c = (ops.cast(power, x.dtype) for power in (a * factor, b * factor**3, c * factor**5))
        x = a * x + ops.matmul(b * gram + c * square, x)
    return x


def are_faster_together(rows: int, dtype: str) -> bool:
    """Return whether one product of many matrices takes less time than one for each.

    Args:
        rows: Rows of a matrix of `wide_and_normalized`.
        dtype: Its dtype.
    """
    if keras.backend.backend() == "torch" or not on_cpu():
        return True
    return keras.backend.backend() == "tensorflow" and dtype == "float32" and rows >= MIN_ROWS

"""Layer and RMS normalization (Ba et al., 2016; Zhang & Sennrich, 2019), of a position's features and of its heads.

`LayerNormalization` and `RMSNormalization` have the arguments, defaults and weights of Keras's layers of these names.

n = (x - mean) / sqrt(variance + epsilon),   y = gamma n + beta           over the features of a position
RMS: the same with 0 for the mean, and without beta; zero-centered RMS: y = (1 + w) n, whose w starts at 0
"""

import math

import keras
from keras import ops

from keras_seq.layers.base.layer import Layer, same_shape
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import batch_and_length
from keras_seq.ops.position_wise import normalize
from keras_seq.ops.tensor_checks import at_least_float32


class OverAxes(Layer):
    """Base class of normalizations over one or several axes, whose weights have the sizes of these axes."""

    loops_over_positions = False
    compute_output_shape = same_shape

    def sizes(self, inputs_shape) -> tuple[int, ...]:
        """Check `axis` against the shape of the inputs, and return the sizes on these axes."""
        rank, axes = len(inputs_shape), self.axis if isinstance(self.axis, list | tuple) else [self.axis]
        valid = {axis % rank for axis in axes if isinstance(axis, int) and -rank <= axis < rank}
        if not valid or len(valid) < len(axes):
            raise ValueError(f"axis={self.axis!r}; expected axes of the inputs, which have shape {inputs_shape}.")
        self.axis = sorted(axes)
        sizes = tuple(inputs_shape[axis] for axis in self.axis)
        if None in sizes:
            raise ValueError(f"inputs has shape {inputs_shape}; expected known sizes on axis {self.axis}.")
        min_rank = max(axis + 1 if axis >= 0 else -axis for axis in self.axis)
        self.input_spec = keras.InputSpec(min_ndim=min_rank, axes=dict(zip(self.axis, sizes, strict=True)))
        return sizes

    def normalize(self, x, gamma, beta, centered: bool):
        """Normalize `x` over the axes, as `normalize` does over the last one; gamma may be None."""
        rank = len(x.shape)
        axes = sorted(axis % rank for axis in self.axis)
        gamma = ops.ones([x.shape[axis] for axis in axes], x.dtype) if gamma is None else gamma
        if axes == [rank - 1]:
            return normalize(x, gamma, beta, self.epsilon, centered)
        last = list(range(-len(axes), 0))
        x = ops.moveaxis(x, axes, last)
        flat = ops.reshape(x, (*ops.shape(x)[: last[0]], math.prod(gamma.shape)))
        gamma, beta = (None if weight is None else ops.reshape(weight, [-1]) for weight in (gamma, beta))
        y = normalize(flat, gamma, beta, self.epsilon, centered)
        return ops.moveaxis(ops.reshape(y, ops.shape(x)), last, axes)


@keras.saving.register_keras_serializable(package="keras_seq")
class LayerNormalization(OverAxes, keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization`, which is right for integers too and faster for many rows.

    ```python
    y = LayerNormalization()(x)  # x [..., D] -> y [..., D]
    y = LayerNormalization(axis=[1, 2], epsilon=1e-5, scale=False)(x)
    ```

    Arguments, their order and defaults, weights and results are those of Keras's class: `axis=-1, epsilon=1e-3,
    center=True, scale=True`, and so on. (PyTorch's default epsilon is 1e-5, which the blocks of this package use.)

    Raises:
        ValueError: If `axis` is no axis of the inputs.
    """

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        self.sizes(inputs_shape)
        super().build(inputs_shape)

    def call(self, inputs):
        """Normalize the axes of `inputs`."""
        x = tensor_checks.real("inputs", inputs, at_least_float32(self.compute_dtype))
        if tensor_checks.dtype_of(x) != self.compute_dtype:  # Keras rounds to that of the inputs
            x = ops.cast(x, "float64" if "float64" in (tensor_checks.dtype_of(x), self.compute_dtype) else "float32")
        if self.rms_scaling:
            return super().call(x)
        return ops.cast(self.normalize(x, self.gamma, self.beta, True), self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_seq")
class RMSNormalization(OverAxes, keras.layers.RMSNormalization):
    """`keras.layers.RMSNormalization`, which is right for integers and over any axis too, and faster for many rows.

    ```python
    y = RMSNormalization()(x)  # x [..., D] -> y [..., D]
    ```

    Args:
        axis: The axis, or axes, to normalize over.
        epsilon: Added to the mean square.
        **kwargs: Those of `keras.layers.Layer`.

    Raises:
        ValueError: If `axis` is no axis of the inputs.
    """

    initial_scale = "ones"

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        # a difference from 1 keeps the precision that half precision has near 0, not near 1
        shape, options = self.sizes(inputs_shape), {"autocast": self.initial_scale == "ones"}
        self.scale = self.add_weight(name="scale", shape=shape, initializer=self.initial_scale, **options)
        self.built = True

    def call(self, inputs):
        """Normalize the axes of `inputs`."""
        return self.normalize(tensor_checks.real("inputs", inputs, self.compute_dtype), self.scale, None, False)


@keras.saving.register_keras_serializable(package="keras_seq")
class ZeroCenteredRMSNormalization(RMSNormalization):
    """RMS normalization whose weights are the differences of the scales from 1, so that weight decay draws these to 1.

    It is Gemma's (Gemma Team, 2024, arXiv:2403.08295). Arguments and errors are those of `RMSNormalization`.
    """

    initial_scale = "zeros"

    def call(self, inputs):
        """Normalize the axes of `inputs`."""
        dtype = at_least_float32(self.compute_dtype)
        x = ops.cast(tensor_checks.real("inputs", inputs, dtype), dtype)
        y = self.normalize(x, ops.add(ops.cast(self.scale, dtype), 1), None, False)
        return ops.cast(y, self.compute_dtype)


NORMALIZATIONS = {
    "layer": LayerNormalization,
    "rms": RMSNormalization,
    "zero_centered_rms": ZeroCenteredRMSNormalization,
}


def make_normalization(kind: str | None, epsilon: float | None = None, **kwargs):
    """Make one of `NORMALIZATIONS` over the last axis; epsilon is 1e-5 for `"layer"`, else 1e-6, unless given.

    None makes a layer that changes nothing.
    """
    if kind is None:
        return keras.layers.Identity(**kwargs)
    default = 1e-5 if kind == "layer" else 1e-6  # PyTorch's and Keras's
    return NORMALIZATIONS[kind](epsilon=default if epsilon is None else epsilon, **kwargs)


# Features in heads: split and merge them, and normalize those of each head.


def split_heads(x, num_heads: int):
    """Return `[B, T, H K]` as `[B, T, H, K]`."""
    return ops.reshape(x, (*batch_and_length(x), num_heads, x.shape[-1] // num_heads))


def merge_heads(x):
    """Return `[B, T, H, V]` as `[B, T, H V]`."""
    return ops.reshape(x, (*batch_and_length(x), x.shape[2] * x.shape[3]))


def normalize_heads(x, gamma, epsilon: float, beta=None, centered: bool = False):
    """Normalize `[B, T, H, V]` over V: RMS normalization, or layer normalization if `centered`.

    gamma and beta are `[V]` or `[H, V]`.
    """
    if centered:
        x = x - _mean(x)
    x = x * ops.rsqrt(_mean(ops.square(x)) + epsilon) * ops.cast(gamma, x.dtype)
    return x if beta is None else x + ops.cast(beta, x.dtype)


def _mean(x):
    """Return the mean over the features; Keras's own takes the mean of float64 in float32 on JAX."""
    return ops.sum(x, axis=-1, keepdims=True) / x.shape[-1]


def normalize_length(x, epsilon: float = 1e-6):
    """Return vectors `[..., K]` of length 1: x / sqrt(sum x^2 + epsilon)."""
    # not `ops.square`: LiteRT takes that for its own normalization, without epsilon
    return x * ops.rsqrt(ops.sum(x * x, axis=-1, keepdims=True) + epsilon)

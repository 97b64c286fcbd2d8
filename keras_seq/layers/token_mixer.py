"""Base class of layers from [B, T, D] to [B, T, D] that mix positions through a linear recurrence of a few heads."""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.dense import Dense
from keras_seq.layers.explicit_state import ShapePreserving
from keras_seq.layers.frozen import freeze_inner_layers


def normalize_heads(x, gamma, epsilon: float, beta=None, centered: bool = False):
    """Normalize the features of each head: RMS normalization, or layer normalization if `centered`.

    Args:
        x: `[B, T, H, V]`.
        gamma: `[V]`, or `[H, V]`.
        epsilon: Added to the variance.
        beta: As gamma, or None.
        centered: Whether to subtract the mean first.

    Returns:
        `[B, T, H, V]`.
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
    return x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + epsilon)


@keras.saving.register_keras_serializable(package="keras_seq")
class EvenlySpaced(keras.initializers.Initializer):
    """Initialize a vector with evenly spaced numbers.

    Args:
        first: First number.
        last: Last number.
    """

    def __init__(self, first: float, last: float):
        self.first, self.last = first, last

    def __call__(self, shape, dtype=None):
        """Return the numbers."""
        return ops.linspace(self.first, self.last, shape[0], dtype=dtype or "float32")

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {"first": self.first, "last": self.last}


class TokenMixer(ShapePreserving):
    """Base class with heads, projections and the arguments that such layers share.

    Args:
        num_heads: H.
        use_bias: Whether the input and output matrices add a bias.
        kernel_initializer: Initializer of all matrices except the last.
        output_initializer: Initializer of the last matrix, which writes to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(
        self,
        num_heads: int,
        use_bias: bool = False,
        kernel_initializer="glorot_uniform",
        output_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = checks.positive_integer("num_heads", num_heads)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)

    def build(self, inputs_shape):
        """Check the shape of the inputs, and let the subclass create the weights by `build_weights(width)`."""
        width = checks.sequence_shape("inputs", inputs_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        self.build_weights(width)
        freeze_inner_layers(self)

    def _dense(self, name, width, units, use_bias=None, initializer=None):
        initializer = self.kernel_initializer if initializer is None else initializer
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = initializer.clone()  # an initializer returns the same values at every call
        layer = Dense(
            units,
            use_bias=self.use_bias if use_bias is None else use_bias,
            kernel_initializer=initializer,
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build((None, width))
        return layer

    def _vector(self, name, shape, initializer="zeros"):
        weight = self.add_weight(shape=shape, initializer=initializer, name=name)
        weight.muon_blocks = 0  # numbers of features, even where they have two axes: Muon must not orthogonalize them
        return weight

    def _heads(self, x):
        """Return `[B, T, H K]` as `[B, T, H, K]`."""
        return ops.reshape(x, (*ops.shape(x)[:2], self.num_heads, x.shape[-1] // self.num_heads))

    def _gated_output(self, y, x):
        """Return (RMS norm(y) silu(x W_gate)) W_out for y `[B, T, H, V]`, normalized over the features of a head."""
        y = merge_heads(normalize_heads(y, self.scale, self.epsilon))
        y = y * ops.silu(self._to_state_dtype(self.gate_dense(x)))
        return self.output_dense(ops.cast(y, self.compute_dtype))

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "output_initializer": keras.initializers.serialize(self.output_initializer),
        }


def merge_heads(x):
    """Return `[B, T, H, V]` as `[B, T, H V]`."""
    return ops.reshape(x, (*ops.shape(x)[:2], x.shape[2] * x.shape[3]))

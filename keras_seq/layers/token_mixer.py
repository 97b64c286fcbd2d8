"""Base class of layers from [B, T, D] to [B, T, D] that mix positions through a linear recurrence of a few heads."""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.dense import inner_dense
from keras_seq.layers.explicit_state import ExplicitState
from keras_seq.layers.frozen import freeze_inner_layers
from keras_seq.layers.heads import merge_heads, normalize_heads, split_heads
from keras_seq.layers.layer import same_shape


class TokenMixer(ExplicitState):
    """Base class with heads, projections and the arguments that such layers share."""

    compute_output_shape = same_shape

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
        return inner_dense(self, name, width, units, self.use_bias if use_bias is None else use_bias, initializer)

    def _vector(self, name, shape, initializer="zeros"):
        return self.add_weight(shape=shape, initializer=initializer, name=name)

    def _heads(self, x):
        return split_heads(x, self.num_heads)

    def _gated_output(self, y, x):
        """Return (RMS norm(y) silu(x W_gate)) W_out for y `[B, T, H, V]`, normalized over the features of a head."""
        y = merge_heads(normalize_heads(y, self.scale, self.epsilon))
        y = y * ops.silu(self._to_state_dtype(self.gate_dense(x)))
        return self.output_dense(ops.cast(y, self.compute_dtype))

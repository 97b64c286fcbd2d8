"""The position-wise feed-forward layer of a Transformer (Vaswani et al., 2017), and its gated form.

feed_forward(x) = activation(x W_1 + b_1) W_2 + b_2
gated(x) = (activation(x W_g + b_g) * (x W_1 + b_1)) W_2 + b_2           SwiGLU: silu, GeGLU: gelu (Shazeer, 2020)
"""

import keras

from keras_seq import checks
from keras_seq.layers.base.layer import Layer, freeze_inner_layers, same_shape
from keras_seq.layers.dense import inner_dense
from keras_seq.ops.dense import activate


@keras.saving.register_keras_serializable(package="keras_seq")
def gelu_tanh(x):
    """Compute gelu by its tanh approximation, as GPT-2 does; at most 5e-4 from the exact value."""
    return keras.activations.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="keras_seq")
class FeedForward(Layer):
    """Two matrices with an activation in between.

    ```python
    layer = FeedForward(512, activation="gelu")
    y = layer(x)  # x [B, T, D] -> y [B, T, D]; any axes before D
    ```

    Args:
        feed_forward_dim: Width of the hidden layer.
        activation: Activation of the hidden layer, a name or a function.
        dropout: Fraction of the hidden layer to drop in training.
        use_bias: Whether the matrices add a bias.
        kernel_initializer: Initializer of the first matrix, `[D, feed_forward_dim]`.
        output_initializer: Initializer of the last matrix, `[feed_forward_dim, D]`, which writes to the residual
            stream.
        seed: Random seed of the dropout.
        **kwargs: Those of `keras.layers.Layer`.

    Masking: the mask is passed on and has no effect; positions do not mix.

    Raises:
        ValueError: If an argument is out of its range, or the width of the inputs is unknown.
    """

    compute_output_shape = same_shape

    def __init__(
        self,
        feed_forward_dim: int,
        activation="gelu",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer="glorot_uniform",
        output_initializer="glorot_uniform",
        seed: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.feed_forward_dim = checks.positive_integer("feed_forward_dim", feed_forward_dim)
        self.activation = keras.activations.get(activation)
        self.dropout = checks.fraction("dropout", dropout)
        self.use_bias = bool(use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.seed = seed
        self.supports_masking = True

    def build(self, inputs_shape):
        """Create the matrices for inputs `[..., D]`."""
        if len(inputs_shape) < 2 or inputs_shape[-1] is None:
            raise ValueError(f"inputs has shape {tuple(inputs_shape)}; expected [B, ..., D] with D known.")
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: inputs_shape[-1]})
        width, inner = inputs_shape[-1], self.feed_forward_dim
        self.hidden_dense = inner_dense(self, "hidden", width, inner, self.use_bias, self.kernel_initializer)
        self.output_dense = inner_dense(self, "output", inner, width, self.use_bias, self.output_initializer)
        self.dropout_layer = keras.layers.Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        freeze_inner_layers(self)

    def hidden(self, x):
        """Compute the hidden layer, `[..., feed_forward_dim]`."""
        return self._activate(self.hidden_dense(x))

    def _activate(self, h):
        return activate(self.activation, h)

    def call(self, inputs, training: bool | None = None):
        """Map `[..., D]` to `[..., D]`."""
        h = self.hidden(inputs)
        return self.output_dense(self.dropout_layer(h, training=training) if self.dropout else h)


@keras.saving.register_keras_serializable(package="keras_seq")
class GatedFeedForward(FeedForward):
    """A feed-forward layer whose hidden layer is multiplied by a gate: SwiGLU with `"silu"`, GeGLU with `"gelu"`.

    ```python
    layer = GatedFeedForward(344, activation="silu")  # 2 / 3 of 516: as many weights as FeedForward(516)
    y = layer(x)  # x [B, T, D] -> y [B, T, D]
    ```

    The gate has a third matrix, `[D, feed_forward_dim]`.

    Args:
        feed_forward_dim: Width of the hidden layer.
        activation: Activation of the gate, a name or a function.
        **kwargs: Those of `FeedForward`.

    Raises:
        ValueError: If an argument is out of its range, or the width of the inputs is unknown.
    """

    def __init__(self, feed_forward_dim: int, activation="silu", **kwargs):
        super().__init__(feed_forward_dim, activation=activation, **kwargs)

    def build(self, inputs_shape):
        """Create the matrices for inputs `[..., D]`."""
        super().build(inputs_shape)
        width, inner = inputs_shape[-1], self.feed_forward_dim
        self.gate_dense = inner_dense(self, "gate", width, inner, self.use_bias, self.kernel_initializer)
        freeze_inner_layers(self)

    def hidden(self, x):
        """Compute the gated hidden layer, `[..., feed_forward_dim]`."""
        return self._activate(self.gate_dense(x)) * self.hidden_dense(x)

"""The part of a Transformer that works on each position alone (Vaswani et al., 2017), and its gated form.

feed_forward(x) = activation(x W_1 + b_1) W_2 + b_2
gated(x) = (activation(x W_g + b_g) * (x W_1 + b_1)) W_2 + b_2           SwiGLU: silu, GeGLU: gelu (Shazeer, 2020)
"""

import keras

from keras_seq import checks, kernels
from keras_seq.layers.dense import Dense


def _of(function, x):
    return function(x)


@keras.saving.register_keras_serializable(package="keras_seq")
class FeedForward(keras.layers.Layer):
    """Two matrices with an activation between them.

    ```python
    layer = FeedForward(512, activation="gelu")
    y = layer(x)  # x [B, T, D] -> y [B, T, D]; any axes before D
    ```

    Args:
        feed_forward_dim: width of the hidden layer.
        activation: between the matrices; a name or a function.
        dropout: fraction of the hidden layer dropped in training.
        use_bias: whether the matrices add a bias.
        kernel_initializer: of the first matrix, `[D, feed_forward_dim]`.
        output_initializer: of the last matrix, `[feed_forward_dim, D]`, that writes into the residual stream.
        seed: of the dropout.

    Masking: the mask passes through; positions do not mix.

    Raises:
        ValueError: for an argument out of its range, or an input of unknown width.
    """

    def __init__(
        self,
        feed_forward_dim,
        activation="gelu",
        dropout=0.0,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        output_initializer="glorot_uniform",
        seed=None,
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

    def build(self, x_shape):
        """Makes the matrices for `x [..., D]`."""
        if len(x_shape) < 2 or x_shape[-1] is None:
            raise ValueError(f"x has shape {tuple(x_shape)}; expected [B, ..., D] with D known.")
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: x_shape[-1]})
        self.hidden_dense = self._dense("hidden", self.feed_forward_dim, x_shape[-1], self.kernel_initializer)
        self.output_dense = self._dense("output", x_shape[-1], self.feed_forward_dim, self.output_initializer)
        self.dropout_layer = keras.layers.Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def _dense(self, name, units, width, initializer):
        # a clone each: an initializer gives the same values at every call
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = initializer.clone()
        layer = Dense(units, use_bias=self.use_bias, kernel_initializer=initializer, dtype=self.dtype_policy, name=name)
        layer.build((None, width))
        return layer

    def hidden(self, x):
        """The hidden layer, `[..., feed_forward_dim]`."""
        return self._activate(self.hidden_dense(x))

    def _activate(self, h):
        return kernels.dispatch("xla_fusion", _of, self.activation, h)(self.activation, h)

    def call(self, x, training=None):
        """See the class."""
        return self.output_dense(self.dropout_layer(self.hidden(x), training=training))

    def compute_output_shape(self, x_shape):
        """As it came."""
        return tuple(x_shape)

    def get_config(self):
        """The arguments."""
        return {
            **super().get_config(),
            "feed_forward_dim": self.feed_forward_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "output_initializer": keras.initializers.serialize(self.output_initializer),
            "seed": self.seed,
        }


@keras.saving.register_keras_serializable(package="keras_seq")
class GatedFeedForward(FeedForward):
    """A feed-forward layer whose hidden layer is multiplied by a gate: SwiGLU with `"silu"`, GeGLU with `"gelu"`.

    ```python
    layer = GatedFeedForward(344, activation="silu")  # 2 / 3 of 516: as many weights as FeedForward(516)
    y = layer(x)  # x [B, T, D] -> y [B, T, D]
    ```

    Arguments, masking and errors as for `FeedForward`; `activation` is the gate's, and there is a third matrix,
    `[D, feed_forward_dim]`, for it.
    """

    def __init__(self, feed_forward_dim, activation="silu", **kwargs):
        super().__init__(feed_forward_dim, activation=activation, **kwargs)

    def build(self, x_shape):
        """Makes the matrices for `x [..., D]`."""
        super().build(x_shape)
        self.gate_dense = self._dense("gate", self.feed_forward_dim, x_shape[-1], self.kernel_initializer)

    def hidden(self, x):
        """The gated hidden layer, `[..., feed_forward_dim]`."""
        return self._activate(self.gate_dense(x)) * self.hidden_dense(x)

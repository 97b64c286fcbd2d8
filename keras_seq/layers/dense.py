"""A dense layer whose bias gradient is summed in float32, in bfloat16 training too.

y = activation(x W + b),   db = sum over all positions of dy
"""

import zlib

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import Layer, MatrixAttribute, freeze_inner_layers, same_shape
from keras_seq.ops import tensor_checks
from keras_seq.ops.dispatch import exportable
from keras_seq.ops.position_wise import activate, dense


@keras.saving.register_keras_serializable(package="keras_seq")
class Dense(Layer, keras.layers.Dense):
    """`keras.layers.Dense` with a bias gradient that is accurate in bfloat16 on TensorFlow's CPU.

    TensorFlow sums the bias gradient in bfloat16 there, which rounds small summands away: over 16,384 positions the
    gradient is 15 to 40 % wrong. Arguments and weights are those of `keras.layers.Dense`.
    """

    loops_over_positions = False
    kernel = MatrixAttribute()

    def get_config(self):
        """Return the constructor's arguments; those of LoRA are left out, because a saved matrix includes it."""
        return {key: value for key, value in super().get_config().items() if key not in ("lora_rank", "lora_alpha")}

    def build(self, input_shape):
        """Create the matrix and the bias for inputs `[..., D]`."""
        rank, self.lora_rank = self.lora_rank, None  # which Keras would add before there is a matrix here
        super().build(input_shape)
        self.kernel = self.weights[0]  # the bias is the second
        if rank:
            self.enable_lora(rank, self.lora_alpha)

    def call(self, inputs):
        """Map `[..., D]` to `[..., units]`."""
        x = dense(tensor_checks.real("inputs", inputs, self.compute_dtype), self.kernel, self.bias)
        return x if self.activation is None else exportable(self.activation)(x)


def cloned(initializer, name: str = ""):
    """Return an initializer with values of its own for each name, as one returns the same at every call."""
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] = zlib.crc32(f"{name} {config['seed']}".encode())
    elif config.get("seed") is not None:  # a SeedGenerator, which draws anew at every call
        return initializer
    return type(initializer).from_config(config)


def scaled(initializer, factor: float):
    """Return an initializer that draws what another one draws, times a factor."""
    initializer = cloned(initializer)
    return lambda shape, dtype=None: factor * initializer(shape, dtype=dtype)


def inner_dense(layer, name: str, width: int, units: int, use_bias: bool, initializer, **options) -> Dense:
    """Return a built matrix `[width, units]` inside of a layer, which knows the class of that layer."""
    options |= {"use_bias": use_bias, "kernel_initializer": cloned(initializer, name)}
    dense = Dense(units, dtype=layer.dtype_policy, name=name, **options)
    dense.build((None, width))
    dense.matrices["kernel"].variable.layer_class = type(layer)
    return dense


# A linear map that keeps groups of features apart: y_n = x_n W_n + b_n for the n-th group of features.


@keras.saving.register_keras_serializable(package="keras_seq")
class BlockDiagonalDense(Layer):
    """Multiply each of `num_blocks` groups of features by a square matrix, a block of the kernel's columns."""

    loops_over_positions = False
    kernel = MatrixAttribute()
    compute_output_shape = same_shape

    def __init__(
        self,
        num_blocks: int,
        use_bias: bool = True,
        kernel_initializer="lecun_normal",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_blocks = checks.positive_integer("num_blocks", num_blocks)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, inputs_shape):
        """Create the kernel and the bias for inputs `[B, T, D]`."""
        width = tensor_checks.sequence_shape("inputs", inputs_shape)
        if width % self.num_blocks:
            raise ValueError(f"num_blocks={self.num_blocks}; expected a divisor of the width {width}.")
        shape = (width // self.num_blocks, width)
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(width,), initializer=self.bias_initializer, name="bias")

    def call(self, inputs):
        """Map `[B, T, D]` to `[B, T, D]`."""
        y = self.project(inputs)
        return y if self.bias is None else y + ops.cast(self.bias, y.dtype)

    def project(self, inputs):
        """Compute the products without the bias, `[B, T, D]`."""
        size, width = self.kernel.shape
        x = tensor_checks.real("inputs", inputs, self.compute_dtype)
        x = ops.reshape(x, (*ops.shape(x)[:2], self.num_blocks, size))
        kernel = ops.reshape(ops.cast(self.kernel, x.dtype), (size, self.num_blocks, size))
        # [B, N, T, W] times [N, W, W]
        y = ops.swapaxes(ops.matmul(ops.swapaxes(x, 1, 2), ops.swapaxes(kernel, 0, 1)), 1, 2)
        return ops.reshape(y, (*ops.shape(inputs)[:2], width))


def inner_block_diagonal(layer, name: str, num_blocks: int, width: int, initializer, **options) -> BlockDiagonalDense:
    """Return a built layer of blocks for inputs `[B, T, width]` inside of a layer."""
    options |= {"kernel_initializer": cloned(initializer, name), "dtype": layer.dtype_policy, "name": name}
    dense = BlockDiagonalDense(num_blocks, **options)
    dense.build((None, None, width))
    return dense


# The position-wise feed-forward layer of a Transformer (Vaswani et al., 2017), and its gated form.
#
# feed_forward(x) = activation(x W_1 + b_1) W_2 + b_2
# gated(x) = (activation(x W_g + b_g) * (x W_1 + b_1)) W_2 + b_2           SwiGLU: silu, GeGLU: gelu (Shazeer, 2020)


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

    loops_over_positions = False

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
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.seed = seed

    def build(self, inputs_shape):
        """Create the matrices for inputs `[..., D]`."""
        if len(inputs_shape) < 2 or inputs_shape[-1] is None:
            raise ValueError(f"inputs has shape {tuple(inputs_shape)}; expected [B, ..., D] with D known.")
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: inputs_shape[-1]})
        width, inner = inputs_shape[-1], self.feed_forward_dim
        self.hidden_dense = inner_dense(self, "hidden", width, inner, self.use_bias, self.kernel_initializer)
        self.output_dense = inner_dense(self, "output", inner, width, self.use_bias, self.output_initializer)
        self.dropout_layer = keras.layers.Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy, name="dropout")
        freeze_inner_layers(self)

    def hidden(self, x):
        """Compute the hidden layer, `[..., feed_forward_dim]`."""
        return activate(self.activation, self.hidden_dense(x))

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
        return activate(self.activation, self.gate_dense(x)) * self.hidden_dense(x)

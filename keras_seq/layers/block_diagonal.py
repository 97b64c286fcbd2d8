"""A linear map that keeps groups of features apart: y_n = x_n W_n + b_n for the n-th group of features."""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.matrix import HasMatrices, Matrix


@keras.saving.register_keras_serializable(package="keras_seq")
class BlockDiagonalDense(HasMatrices):
    """Multiply each group of features by a square matrix of its own.

    Args:
        num_blocks: Number of groups, a divisor of the width D.
        use_bias: Whether to add a bias.
        kernel_initializer: Initializer of the kernel `[D / num_blocks, D]`, whose n-th block of columns is W_n.
        bias_initializer: Initializer of the bias `[D]`.
        **kwargs: Those of `keras.layers.Layer`.

    Raises:
        ValueError: If an argument is out of its range, or `num_blocks` does not divide the width of the inputs.
    """

    kernel = Matrix()

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
        self.supports_masking = True

    def build(self, inputs_shape):
        """Create the kernel and the bias for inputs `[B, T, D]`."""
        width = checks.sequence_shape("inputs", inputs_shape)
        if width % self.num_blocks:
            raise ValueError(f"num_blocks={self.num_blocks}; expected a divisor of the width {width}.")
        shape = (width // self.num_blocks, width)
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        self.kernel.muon_blocks = self.num_blocks if shape[0] > 8 else 0  # Muon leaves many tiny matrices to AdamW
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(width,), initializer=self.bias_initializer, name="bias")

    def call(self, inputs):
        """Map `[B, T, D]` to `[B, T, D]`."""
        size, width = self.kernel.shape
        x = checks.real("inputs", inputs, self.compute_dtype)
        x = ops.reshape(x, (*ops.shape(x)[:2], self.num_blocks, size))
        kernel = ops.reshape(ops.cast(self.kernel, x.dtype), (size, self.num_blocks, size))
        # [B, N, T, W] times [N, W, W]
        y = ops.swapaxes(ops.matmul(ops.swapaxes(x, 1, 2), ops.swapaxes(kernel, 0, 1)), 1, 2)
        y = ops.reshape(y, (*ops.shape(inputs)[:2], width))
        return y if self.bias is None else y + ops.cast(self.bias, y.dtype)

    def compute_output_shape(self, inputs_shape) -> tuple:
        """Return the shape of the inputs, `[B, T, D]`."""
        return tuple(inputs_shape)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {
            **super().get_config(),
            "num_blocks": self.num_blocks,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

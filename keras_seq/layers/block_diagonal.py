"""A linear map that keeps groups of features apart: y_n = x_n W_n + b_n for the n-th group of features."""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.layer import Layer, same_shape
from keras_seq.layers.matrix import MatrixAttribute


@keras.saving.register_keras_serializable(package="keras_seq")
class BlockDiagonalDense(Layer):
    """Multiply each of `num_blocks` groups of features by a square matrix, a block of the kernel's columns."""

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
        self.supports_masking = True

    def build(self, inputs_shape):
        """Create the kernel and the bias for inputs `[B, T, D]`."""
        width = checks.sequence_shape("inputs", inputs_shape)
        if width % self.num_blocks:
            raise ValueError(f"num_blocks={self.num_blocks}; expected a divisor of the width {width}.")
        shape = (width // self.num_blocks, width)
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
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

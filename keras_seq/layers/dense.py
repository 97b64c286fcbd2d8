"""Keras's dense layer, with the gradient of its bias summed in float32 in bfloat16 too.

y = activation(x W + b),   db = sum over all positions of dy
"""

import keras
from keras import ops

from keras_seq import kernels


@keras.saving.register_keras_serializable(package="keras_seq")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense`, whose bias also learns in bfloat16 on TensorFlow's CPU.

    There Keras's adds up the bias's gradient in bfloat16, and what is added to a large sum is rounded away: over 16,384
    positions the gradient is 15 to 40 % wrong. Arguments, weights and all else are Keras's.
    """

    def call(self, x, training=None):
        """`[..., D]` -> `[..., units]`."""
        x = ops.matmul(x, self.kernel)
        if self.bias is not None:
            x = kernels.dispatch("bias_add", ops.add, x, self.bias)(x, self.bias)
        return x if self.activation is None else self.activation(x)

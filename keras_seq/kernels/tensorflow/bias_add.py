"""x + bias in bfloat16 on TensorFlow's CPU, with the gradient of the bias summed in float32.

db = 1^T dy          a matmul, which accumulates in float32; TensorFlow's `BiasAddGrad` accumulates in bfloat16,
                     and so do its matmuls on a processor that does not multiply bfloat16: there dy is cast
"""

import keras
import tensorflow as tf

from keras_seq.kernels.devices import cpu_multiplies_bfloat16, on_cpu


def supports(x, bias) -> bool:
    """Return whether x is bfloat16 on a CPU.

    Args:
        x: `[..., W]`.
        bias: `[W]`.
    """
    return keras.backend.standardize_dtype(x.dtype) == "bfloat16" and on_cpu()


def apply(x, bias):
    """Add a bias.

    Args:
        x: `[..., W]`.
        bias: `[W]`.

    Returns:
        `[..., W]`.
    """

    @tf.custom_gradient
    def add(x, bias):
        def gradient(dy):
            rows = tf.reshape(dy, [-1, dy.shape[-1]])
            if cpu_multiplies_bfloat16():
                return dy, tf.matmul(tf.ones((1, tf.shape(rows)[0]), dy.dtype), rows)[0]
            return dy, tf.cast(tf.reduce_sum(tf.cast(rows, "float32"), axis=0), dy.dtype)

        return tf.nn.bias_add(x, bias), gradient

    return add(x, tf.convert_to_tensor(bias, x.dtype))

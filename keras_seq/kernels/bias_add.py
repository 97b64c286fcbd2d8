"""x + bias in bfloat16 on TensorFlow's CPU, with the bias's gradient summed in float32.

db = 1^T dy          a matmul, which accumulates in float32; TensorFlow's `BiasAddGrad` does so in bfloat16
"""

import keras
import tensorflow as tf

from keras_seq.kernels.devices import on_cpu


def supports(x, bias):
    """Whether the twin takes these: x in bfloat16."""
    return keras.backend.standardize_dtype(x.dtype) == "bfloat16" and on_cpu()


def apply(x, bias):
    """`x [..., W] + bias [W]`."""

    @tf.custom_gradient
    def add(x, bias):
        def gradient(dy):
            rows = tf.reshape(dy, [-1, dy.shape[-1]])
            return dy, tf.matmul(tf.ones((1, tf.shape(rows)[0]), dy.dtype), rows)[0]

        return tf.nn.bias_add(x, bias), gradient

    return add(x, tf.convert_to_tensor(bias, x.dtype))

"""Layer and RMS normalisation of many rows on TensorFlow's CPU: a program each way, means as matmuls with a vector.

    n = (x - mean) r,   r = 1 / sqrt(variance + epsilon),   y = gamma n + beta        RMS: the same with a mean of 0
    dx = r (h - mean(h) - n mean(h n)),   h = gamma dy                                RMS: without mean(h)

XLA vectorises a product with a vector, but hardly a sum along the last axis: half the time.
"""

import functools

import keras
import tensorflow as tf

from keras_seq.kernels.xla_fusion import fused, large


def supports(x, gamma, beta, epsilon, centered):
    """Whether the twin takes these arguments: many values, no wider than float32."""
    return large(x) and keras.backend.standardize_dtype(x.dtype) in ("float32", "bfloat16", "float16")


def apply(x, gamma, beta, epsilon, centered):
    """The twin of `keras_seq.layers.normalization.normalize`; see there."""
    shape, width = x.shape, x.shape[-1]

    def of(*parameters):
        @tf.custom_gradient
        def normalize(x, *parameters):
            y, mean, rate = fused(functools.partial(_forward, epsilon, centered))(x, *parameters)

            def gradient(dy):
                return fused(functools.partial(_back, centered))(x, mean, rate, dy, *parameters)

            return y, gradient

        return normalize(tf.reshape(x, (-1, width)), *parameters)

    parameters = [gamma] if beta is None else [gamma, beta]
    return tf.reshape(of(*map(tf.convert_to_tensor, parameters)), shape)


def _forward(epsilon, centered, x, gamma, beta=None):
    """`(y [N, D], mean [N, 1] or 0, r [N, 1])` of `x [N, D]`."""
    wide = tf.cast(x, tf.float32)
    mean = _mean(wide) if centered else tf.constant(0.0)
    off = wide - mean
    rate = tf.math.rsqrt(_mean(off * off) + epsilon)
    y = off * rate * tf.cast(gamma, tf.float32)
    return tf.cast(y if beta is None else y + tf.cast(beta, tf.float32), x.dtype), mean, rate


def _back(centered, x, mean, rate, dy, gamma, beta=None):
    """The gradients of x, gamma and, if there is one, beta."""
    n, wide = (tf.cast(x, tf.float32) - mean) * rate, tf.cast(dy, tf.float32)
    h = wide * tf.cast(gamma, tf.float32)
    dx = h - n * _mean(h * n)
    dx = tf.cast(rate * (dx - _mean(h) if centered else dx), x.dtype)
    d_gamma = tf.cast(tf.reduce_sum(wide * n, axis=0), gamma.dtype)
    return (dx, d_gamma) if beta is None else (dx, d_gamma, tf.cast(tf.reduce_sum(wide, axis=0), beta.dtype))


def _mean(x):
    return tf.matmul(x, tf.ones((x.shape[1], 1))) / x.shape[1]

"""Layer normalization on TensorFlow, and that of many rows on its CPU: one XLA program per direction, means as matmuls.

    n = (x - mean) r,   r = 1 / sqrt(variance + epsilon),   y = gamma n + beta        RMS: the same with a mean of 0
    dx = r (h - mean(h) - n mean(h n)),   h = gamma dy                                RMS: without mean(h)

XLA vectorizes a product with a vector well and a sum along the last axis poorly: matmuls take half the time.

Elsewhere it is these formulas as they stand: Keras takes the variance from `tf.nn.moments`, whose second derivative is
wrong, because it does not differentiate the mean in it.
"""

import keras
import tensorflow as tf

from keras_seq.ops.normalization.reference import normalize
from keras_seq.ops.xla import is_large


def is_wrong_or_slow(x, gamma, beta, epsilon, centered) -> bool:
    """Return whether Keras's own operation is wrong, as for layer normalization, or slow."""
    return centered or _is_fused(x)


def _is_fused(x):
    return is_large(x) and keras.backend.standardize_dtype(x.dtype) in ("float32", "bfloat16", "float16")


@normalize.on("tensorflow", supports=is_wrong_or_slow)
def normalize_rows(x, gamma, beta, epsilon, centered):
    """Normalize the last axis."""
    if not _is_fused(x):
        return _layer_normalization(x, gamma, beta, epsilon)

    @tf.custom_gradient
    def fused(x, *parameters):
        y, mean, rate = _forward(epsilon, centered, x, *parameters)

        def gradient(dy):
            return _backward(centered, x, mean, rate, dy, *parameters)

        return y, gradient

    parameters = [gamma] if beta is None else [gamma, beta]
    y = fused(tf.reshape(x, (-1, x.shape[-1])), *map(tf.convert_to_tensor, parameters))
    return tf.reshape(y, x.shape)


def _layer_normalization(x, gamma, beta, epsilon):
    wide = tf.float64 if x.dtype == tf.float64 else tf.float32
    wide_x = tf.cast(x, wide)
    centered_x = wide_x - tf.reduce_mean(wide_x, axis=-1, keepdims=True)
    rate = tf.math.rsqrt(tf.reduce_mean(tf.square(centered_x), axis=-1, keepdims=True) + epsilon)
    y = centered_x * rate * tf.cast(gamma, wide)
    return tf.cast(y if beta is None else y + tf.cast(beta, wide), x.dtype)


@tf.function(jit_compile=True, autograph=False)  # one function, so that layers of the same shape share a program
def _forward(epsilon, centered, x, gamma, beta=None):
    """Return `(y [N, D], mean [N, 1] or 0, r [N, 1])` of `x [N, D]`."""
    x32 = tf.cast(x, tf.float32)
    mean = _mean(x32) if centered else tf.constant(0.0)
    centered_x = x32 - mean
    rate = tf.math.rsqrt(_mean(centered_x * centered_x) + epsilon)
    y = centered_x * rate * tf.cast(gamma, tf.float32)
    return tf.cast(y if beta is None else y + tf.cast(beta, tf.float32), x.dtype), mean, rate


@tf.function(jit_compile=True, autograph=False)
def _backward(centered, x, mean, rate, dy, gamma, beta=None):
    """Return the gradients of x, gamma and, if there is one, beta."""
    n, dy32 = (tf.cast(x, tf.float32) - mean) * rate, tf.cast(dy, tf.float32)
    h = dy32 * tf.cast(gamma, tf.float32)
    dx = h - n * _mean(h * n)
    dx = tf.cast(rate * (dx - _mean(h) if centered else dx), x.dtype)
    d_gamma = tf.cast(tf.reduce_sum(dy32 * n, axis=0), gamma.dtype)
    return (dx, d_gamma) if beta is None else (dx, d_gamma, tf.cast(tf.reduce_sum(dy32, axis=0), beta.dtype))


def _mean(x):
    return tf.matmul(x, tf.ones((x.shape[1], 1))) / x.shape[1]

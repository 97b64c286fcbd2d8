"""Biases in bfloat16, fused activations, rows of a small table and normalization on TensorFlow, most of it on a CPU.

db = 1^T dy                              a matmul, which accumulates in float32; TensorFlow's `BiasAddGrad`
                                         accumulates in bfloat16, and so do its matmuls on a processor that does not
                                         multiply bfloat16: there dy is cast
z = table[ids],  d table = onehot(ids)^T dz      autodiff would add the rows one after the other

Normalization of many rows is one XLA program per direction, with means as matmuls: XLA vectorizes a product with a
vector well and a sum along the last axis poorly.

    n = (x - mean) r,   r = 1 / sqrt(variance + epsilon),   y = gamma n + beta        RMS: the same with a mean of 0
    dx = r (h - mean(h) - n mean(h n)),   h = gamma dy                                RMS: without mean(h)

Layer normalization of fewer rows is these formulas as they stand: Keras takes the variance from `tf.nn.moments`, whose
second derivative is wrong, because it does not differentiate the mean in it.
"""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_seq.ops.dispatch import cpu_multiplies_bfloat16
from keras_seq.ops.position_wise import activate, add_bias, normalize, projects_table, rows_of_table
from keras_seq.ops.xla import is_large

MIN_IDS_PER_ROW = 4  # ids per row of the table; below, projecting the table costs as much as it saves
MAX_ROWS_PER_COLUMN = 2  # V / D; above, the matmul of the gradient costs as much as it saves


def is_bfloat16(x, bias) -> bool:
    """Return whether x is bfloat16."""
    return keras.backend.standardize_dtype(x.dtype) == "bfloat16"


@add_bias.on("tensorflow", supports=is_bfloat16, device="cpu")
def add_bias_in_bfloat16(x, bias):
    """Add a bias, whose gradient is summed in float32."""

    @tf.custom_gradient
    def add(x, bias):
        def gradient(dy):
            rows = tf.reshape(dy, [-1, dy.shape[-1]])
            if cpu_multiplies_bfloat16():
                return dy, tf.matmul(tf.ones((1, tf.shape(rows)[0]), dy.dtype), rows)[0]
            return dy, tf.cast(tf.reduce_sum(tf.cast(rows, "float32"), axis=0), dy.dtype)

        return tf.nn.bias_add(x, bias), gradient

    return add(x, tf.convert_to_tensor(bias, x.dtype))


def is_large_input(function, x) -> bool:
    """Return whether x is large and the function is not a layer, which may have weights."""
    return not isinstance(function, keras.layers.Layer) and is_large(x)


@activate.on("tensorflow", supports=is_large_input)
def fused_activation(function, x):
    """Compute a pointwise or row-wise `function(x)` as one loop over memory instead of one for each operation.

    Only x is stored for the gradient, which recomputes the rest: that is cheaper than memory traffic.
    """
    in_float32, vjp = _programs(function)

    @tf.custom_gradient
    def forward(x):
        return in_float32(x), functools.partial(vjp, x)

    return forward(x)


@functools.lru_cache(maxsize=64)
def _programs(function):
    """Return a pointwise function and its vector-Jacobian product, compiled once for layers of the same shape."""

    def in_float32(x):  # bfloat16 is rounded once, not after every operation
        return tf.cast(function(tf.cast(x, tf.float32) if x.dtype.size < 4 else x), x.dtype)

    def vjp(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = in_float32(x)
        return tape.gradient(y, x, output_gradients=dy)

    return [tf.function(program, jit_compile=True, autograph=False) for program in (in_float32, vjp)]


@projects_table.on("tensorflow", device="cpu")
def is_table_small(ids, rows, width) -> bool:
    """Return whether a batch has many ids for each row of the table, and the table is not much longer than wide."""
    num_ids = tf.TensorShape(ids.shape).num_elements()
    is_small = num_ids is not None and num_ids >= MIN_IDS_PER_ROW * rows and rows <= MAX_ROWS_PER_COLUMN * width
    return is_small and not tf.executing_eagerly()


@rows_of_table.on("tensorflow")
def rows_of_small_table(ids, table):
    """Return the rows, with the gradient of the table as one matmul."""

    @tf.custom_gradient
    def lookup(table):
        def gradient(dz):
            one_hot = tf.one_hot(tf.reshape(time_major_ids, [-1]), table.shape[0], dtype=dz.dtype)
            return tf.matmul(one_hot, tf.reshape(tf.transpose(dz, (1, 0, 2)), [-1, table.shape[1]]), transpose_a=True)

        # A recurrent layer transposes z at once: TensorFlow removes two transpositions that cancel each other.
        # The ids are transposed by a gather, because oneDNN logs an error when integers are transposed.
        rows, length = ids.shape
        time_major_ids = tf.gather(tf.reshape(ids, [-1]), np.arange(rows * length).reshape(rows, length).T)
        size = table.shape[0]
        safe_ids = tf.where((time_major_ids >= 0) & (time_major_ids < size), time_major_ids, size)
        with_nan = tf.concat([table, tf.fill([1, table.shape[1]], tf.constant(np.nan, table.dtype))], axis=0)
        return tf.transpose(tf.gather(with_nan, safe_ids), (1, 0, 2)), gradient

    return lookup(table)


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

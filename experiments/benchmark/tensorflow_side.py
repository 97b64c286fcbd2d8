"""Differentiate a function, wait for the device and describe it, with TensorFlow."""

import tensorflow as tf

GPUS = tf.config.list_physical_devices("GPU")


def gradients(function):
    """Return a compiled function from arrays to the gradients of the sum of squares of `function(*arrays)`."""

    @tf.function
    def gradients(*arrays):
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            total = tf.reduce_sum(tf.square(tf.cast(function(*arrays), "float32")))
        return tape.gradient(total, arrays)

    return gradients


def wait(array):
    """Wait until an array is computed."""
    array.numpy()


def device() -> tuple[str, str]:
    """Return the platform, "cpu" or "gpu", and the name of the device."""
    if not GPUS:
        return "cpu", "cpu"
    return "gpu", tf.config.experimental.get_device_details(GPUS[0]).get("device_name", "GPU")


def peak_bytes() -> int | None:
    """Return the peak memory of the GPU; None on a CPU."""
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] if GPUS else None


def repeated(x, y) -> tf.data.Dataset:
    """Return a dataset that repeats one batch."""
    options = tf.data.Options()
    options.autotune.enabled = False  # the end of `fit` waits for its thread, for up to as long as the training took
    return tf.data.Dataset.from_tensors((x, y)).repeat().with_options(options)

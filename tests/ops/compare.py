"""Compare an optimized version on TensorFlow with its reference, and watch which versions run."""

import contextlib

import numpy as np
import tensorflow as tf

import keras_seq.ops

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2}


def values_and_gradients(function, args, shown=None):
    """The outputs and the gradients of a sum over those that are shown, by number; None shows all."""
    with tf.GradientTape() as tape:
        tape.watch(args)
        outputs = function(*args)
        loss = sum(
            (n + 1) * tf.reduce_sum(tf.sin(tf.cast(output, "float64")))
            for n, output in enumerate(outputs)
            if shown is None or n in shown
        )
    return [*outputs, *tape.gradient(loss, args, unconnected_gradients="zero")]


def by_reference(operation, args, shown=None):
    """What `values_and_gradients` gives without any twin."""
    with keras_seq.ops.reference():
        return values_and_gradients(operation, args, shown)


def assert_equal(got, expected, dtype="float32"):
    """Check dtypes and numbers, these by the largest of a tensor."""
    for n, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        assert ours.dtype == theirs.dtype, n
        ours, theirs = (np.asarray(tf.cast(x, "float64")) for x in (ours, theirs))
        scale = max(np.abs(theirs).max(), 1e-6)
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=TOLERANCE[dtype], rtol=0, err_msg=str(n))


@contextlib.contextmanager
def twins_called(*operations):
    """Yield a list that grows by `(name, args)` whenever a twin of one of the operations runs."""
    calls, before = [], [[*operation.twins] for operation in operations]

    def watched(name, twin):
        def run(*args, **kwargs):
            calls.append((name, args))
            return twin(*args, **kwargs)

        return run

    for operation in operations:
        operation.twins[:] = [
            (device, supports, watched(operation.__name__, twin)) for device, supports, twin in operation.twins
        ]
    try:
        yield calls
    finally:
        for operation, twins in zip(operations, before, strict=True):
            operation.twins[:] = twins

"""Batches as a function of the step: `dataset(first, last)` maps `at` over a range of whole numbers, nothing else."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

PIECE = 1 << 20  # ids worked on at a time, which bounds the memory beside those that stay
LARGEST_BATCH = 2**31  # ids; TensorFlow counts in 32 bits in many places


def check_whole(name: str, value: int, least: int) -> None:
    """Raise a ValueError unless the value is a whole number of at least `least` that an int64 holds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise ValueError(f"{name} must be a whole number from {least} to 2**63 - 1, not {value!r}.")


def check_step(step: int | tf.Tensor) -> None:
    """Raise a ValueError unless the step is a whole number of at least 0, or an integer tensor."""
    if not tf.is_tensor(step):
        check_whole("step", int(step) if isinstance(step, np.integer) else step, least=0)
    elif not step.dtype.is_integer:
        raise ValueError(f"step must be an integer, not {step.dtype.name}.")


def check_steps(first: int, last: int | None) -> None:
    """Raise a ValueError unless 0 <= first <= last in whole numbers, or `last` is None."""
    check_whole("first", first, least=0)
    if last is not None:
        check_whole("last", last, least=first)


def pipeline(at: Callable, first: int, last: int | None) -> tf.data.Dataset:
    """The batches `at(first)`, ..., `at(last - 1)`."""
    check_steps(first, last)
    steps = tf.data.Dataset.counter(first) if last is None else tf.data.Dataset.range(first, last)
    return ahead(steps.map(at, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True))


def ahead(batches: tf.data.Dataset) -> tf.data.Dataset:
    """The same batches, made while the ones before are in use."""
    options = tf.data.Options()
    # Whoever has read the last batch would wait for the thread that tunes, which sleeps up to a minute (JOURNAL.md).
    options.autotune.enabled = False
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)

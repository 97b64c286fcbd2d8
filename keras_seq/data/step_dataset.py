"""Batches as a function of the step: `dataset(first, last)` maps `at` over a range of whole numbers, nothing else."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_seq import checks


def check_step(step: int | tf.Tensor) -> None:
    """Raise a ValueError unless the step is a whole number of at least 0, or an integer tensor."""
    if not tf.is_tensor(step):
        checks.integer("step", int(step) if isinstance(step, np.integer) else step, min_value=0)
    elif not step.dtype.is_integer:
        raise ValueError(f"step must be an integer, not {step.dtype.name}.")


def check_steps(start_step: int, stop_step: int | None) -> None:
    """Raise a ValueError unless 0 <= first <= last in whole numbers, or `last` is None."""
    checks.integer("first", start_step, min_value=0)
    if stop_step is not None:
        checks.integer("last", stop_step, min_value=start_step)


def step_dataset(batch_fn: Callable, start_step: int, stop_step: int | None) -> tf.data.Dataset:
    """The batches `at(first)`, ..., `at(last - 1)`."""
    check_steps(start_step, stop_step)
    steps = tf.data.Dataset.counter(start_step) if stop_step is None else tf.data.Dataset.range(start_step, stop_step)
    return prefetch(steps.map(batch_fn, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True))


def prefetch(batches: tf.data.Dataset) -> tf.data.Dataset:
    """The same batches, made while the ones before are in use."""
    options = tf.data.Options()
    # Whoever has read the last batch would wait for the thread that tunes, which sleeps up to a minute (JOURNAL.md).
    options.autotune.enabled = False
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)

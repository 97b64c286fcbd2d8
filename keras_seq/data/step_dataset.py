"""Build a `tf.data.Dataset` from a function of the step: `dataset(start_step, stop_step)` maps `batch` over a range."""

from collections.abc import Callable

import tensorflow as tf

from keras_seq import checks


def check_step(step: int | tf.Tensor) -> None:
    """Raise a ValueError unless a step is an integer of at least 0, or an integer tensor."""
    if not tf.is_tensor(step):
        checks.integer("step", step, min_value=0)
    elif not step.dtype.is_integer:
        raise ValueError(f"step has the dtype {step.dtype.name}; expected an integer.")


def check_steps(start_step: int, stop_step: int | None) -> None:
    """Check a range of steps.

    Args:
        start_step: First step, at least 0.
        stop_step: Step after the last one, at least `start_step`; None for an endless range.

    Raises:
        ValueError: A step is not an integer or out of its range.
    """
    checks.integer("start_step", start_step, min_value=0)
    if stop_step is not None:
        checks.integer("stop_step", stop_step, min_value=start_step)


def step_dataset(
    batch_fn: Callable[[tf.Tensor], object], start_step: int = 0, stop_step: int | None = None
) -> tf.data.Dataset:
    """Create a dataset of the batches of a range of steps, in order, computed in parallel.

    Args:
        batch_fn: Function from a step, a scalar int64 tensor, to its batch.
        start_step: First step.
        stop_step: Step after the last one; None for an endless dataset.

    Raises:
        ValueError: Not 0 <= start_step <= stop_step, in integers.
    """
    check_steps(start_step, stop_step)
    steps = tf.data.Dataset.counter(start_step) if stop_step is None else tf.data.Dataset.range(start_step, stop_step)
    return prefetch(steps.map(batch_fn, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True))


def prefetch(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Add prefetching to a dataset, with the autotuning thread disabled."""
    options = tf.data.Options()
    # With autotuning, iteration ends up to a minute late: it joins the tuning thread, which sleeps.
    options.autotune.enabled = False
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)

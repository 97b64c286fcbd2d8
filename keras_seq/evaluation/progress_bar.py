"""Show a bar on the terminal: tokens, training speed, time remaining, loss, and the progress of a validation.

    seconds remaining = (last_step - step) s + v(step) t + f

s: seconds of a step;  v: remaining validations;  t: seconds of the last validation;  f: seconds of the final one.
Code that scores a text reports its progress through `track_progress`, whether a bar listens or not.
"""

import contextlib
import contextvars
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
from tqdm import tqdm

MIN_REFRESH_SECONDS = 0.2  # between two updates of the bar during a validation
_listener = contextvars.ContextVar("listener", default=None)


def track_progress(starts: range, total: int) -> Iterator[int]:
    """Yield the start of each part of a text, and report the progress after each."""
    for start in starts:
        yield start
        listener = _listener.get()
        if listener is not None and len(starts) > 1:
            listener(min((start + starts.step) / starts.stop, 1.0), total)


@contextlib.contextmanager
def progress_listener(listener: Callable[[float, int], None]):
    """Call a function with the progress that `track_progress` reports inside a `with` block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def validations_remaining(step: int, last_step: int, every: int) -> int:
    """Return the number of validations after a step: one at each multiple of `every`, and one at the last step."""
    return -(-last_step // every) - step // every if step < last_step else 0


def seconds_remaining(
    step: int,
    last_step: int,
    every: int,
    step_seconds: float,
    validation_seconds: float = 0.0,
    final_seconds: float = 0.0,
) -> float:
    """Return the duration of the rest of a training, with its validations and the final one.

    >>> seconds_remaining(step=100, last_step=1000, every=250, step_seconds=0.5, validation_seconds=20.0,
    ...                   final_seconds=60.0)
    590.0
    """
    validations = validations_remaining(step, last_step, every)
    return (last_step - step) * step_seconds + validations * validation_seconds + final_seconds


class TokenBar(tqdm):
    """Show tqdm's bar with the attributes `speed` and `time_remaining`, which the caller sets."""

    FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{time_remaining}, {speed}{postfix}]"
    time_remaining, speed = "?", "?"

    @property
    def format_dict(self):
        """Return tqdm's values with the two added."""
        return {**super().format_dict, "time_remaining": self.time_remaining, "speed": self.speed}


@contextlib.contextmanager
def scoring_bar(name: str):
    """Show the progress of what is scored inside a `with` block on the terminal."""
    bar_format = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
    with tqdm(desc=name, total=1.0, bar_format=bar_format, dynamic_ncols=True, leave=False, disable=None) as bar:

        def update(fraction, total):
            if fraction < bar.n:  # another text started
                bar.reset()
            bar.update(fraction - bar.n)

        with progress_listener(update):
            yield


class ProgressBar(keras.callbacks.Callback):
    """Show the progress of a training in tokens.

    The time remaining begins with `>` while no validation has been timed.
    """

    def __init__(
        self,
        name: str,
        tokens_per_step: int,
        start_step: int,
        last_step: int,
        logger,
        every: int,
        final_duration_ratio: float = 0.0,
        characters_per_token: float | None = None,
    ):
        super().__init__()
        self.tokens_per_step, self.last_step, self.logger, self.every = tokens_per_step, last_step, logger, every
        self.final_duration_ratio, self.characters_per_token = final_duration_ratio, characters_per_token
        self.timed_from = None  # seconds and step after the first execution, which compiles
        self.step_seconds = self.validation_seconds = None
        self._refresh_time = 0.0
        self.bar = TokenBar(
            desc=name,
            total=last_step * tokens_per_step,
            initial=start_step * tokens_per_step,
            unit="tok",
            unit_scale=True,
            dynamic_ncols=True,
            bar_format=TokenBar.FORMAT,
            disable=None,
        )

    def on_train_batch_end(self, batch, logs=None):
        """Update the bar."""
        step = int(self.model.optimizer.step)
        self._time(step)
        self.bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)
        self.bar.update(step * self.tokens_per_step - self.bar.n)

    def _time(self, step):
        if self.timed_from is None:
            self.timed_from = (self.logger.seconds, step)
            return
        seconds, first_step = self.timed_from
        self.step_seconds = (self.logger.seconds - seconds) / (step - first_step)
        if self.step_seconds:
            self.bar.speed = f"{tqdm.format_sizeof(self.tokens_per_step / self.step_seconds)}tok/s"
        validation_seconds = self.validation_seconds or 0.0
        final_seconds = self.final_duration_ratio * validation_seconds
        remaining = seconds_remaining(
            step, self.last_step, self.every, self.step_seconds, validation_seconds, final_seconds
        )
        at_least = ">" if self.validation_seconds is None else ""
        self.bar.time_remaining = at_least + tqdm.format_interval(remaining)

    def validation(self, validate_fn: Callable[[], Any]):
        """Return the result of a validation, showing its progress and timing it."""
        start_time = time.perf_counter()
        with self._showing("validating"):
            summaries = validate_fn()
        self.validation_seconds = time.perf_counter() - start_time
        return summaries

    def final_validation(self, validate_fn: Callable[[], Any]):
        """Return the result of the final validation, showing its progress."""
        with self._showing("scoring"):
            return validate_fn()

    @contextlib.contextmanager
    def _showing(self, activity):
        """Show an activity and its progress inside a `with` block."""
        self._set_text(activity)

        def update(fraction, total):
            if time.monotonic() - self._refresh_time >= MIN_REFRESH_SECONDS:
                self._set_text(f"{activity} {self._size(total)}: {fraction:.0%}")

        with progress_listener(update):
            yield

    def _size(self, tokens):
        if self.characters_per_token is None:
            return f"{tokens:,} tokens"
        return f"{round(tokens * self.characters_per_token):,} characters"

    def _set_text(self, text):
        self._refresh_time = time.monotonic()
        self.bar.set_postfix_str(text)

    def on_train_end(self, logs=None):
        """Close the bar."""
        self.bar.close()

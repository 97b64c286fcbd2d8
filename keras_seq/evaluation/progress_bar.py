"""A bar on the terminal: tokens, the speed of training, the time left, the loss, and how far a validation is.

    seconds left = (last - step) s + v(step) t + f

s: seconds of a step;  v: validations to come;  t: seconds of the last validation;  f: seconds of the final scores. What
scores a text says how far it is by `counted`, whoever shows that.
"""

import contextlib
import contextvars
import time

import keras
from tqdm import tqdm

EVERY = 0.2  # seconds between two looks of the bar while something is scored
_listener = contextvars.ContextVar("listener", default=None)


def counted(parts: range, total):
    """Goes through the beginnings of the parts of a text of `total` tokens, and says after each how far it is."""
    for start in parts:
        yield start
        listener = _listener.get()
        if listener is not None and len(parts) > 1:
            listener(min((start + parts.step) / parts.stop, 1.0), total)


@contextlib.contextmanager
def listening(listener):
    """Has a function `(share, total)` told how far `counted` is, until the block ends."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def validations_left(step, last, every) -> int:
    """How many come after a step: one at each multiple of `every`, and one at the last step."""
    return -(-last // every) - step // every if step < last else 0


def seconds_left(step, last, every, step_seconds, validation_seconds=0.0, final_seconds=0.0) -> float:
    """How long training goes on after a step, its validations and the final scores with it.

    >>> seconds_left(step=100, last=1000, every=250, step_seconds=0.5, validation_seconds=20.0, final_seconds=60.0)
    590.0
    """
    validations = validations_left(step, last, every)
    return (last - step) * step_seconds + validations * validation_seconds + final_seconds


class Bar(tqdm):
    """tqdm's, with a `speed` and a time `left` that are told to it."""

    FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{left}, {speed}{postfix}]"
    left, speed = "?", "?"

    @property
    def format_dict(self):
        return {**super().format_dict, "left": self.left, "speed": self.speed}


@contextlib.contextmanager
def scoring_bar(what):
    """Shows on the terminal how far the scorings of a block are."""
    form = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
    with tqdm(desc=what, total=1.0, bar_format=form, dynamic_ncols=True, leave=False, disable=None) as bar:

        def scored(share, total):
            if share < bar.n:  # another one begins
                bar.reset()
            bar.update(share - bar.n)

        with listening(scored):
            yield


class ProgressBar(keras.callbacks.Callback):
    """Shows the bar.

    Args:
        name: of the run.
        tokens_per_step: tokens in a batch.
        first, last: steps.
        record: a `Record`, which knows the seconds that were spent in steps.
        every: steps between two validations.
        final_times: how many times as long as a validation the final scores take; 0 where the last validation has them.
        characters_per_token: for how much is validated; without, it is told in tokens.

    The time left begins with `>` while no validation has been timed.
    """

    def __init__(self, name, tokens_per_step, first, last, record, every, final_times=0.0, characters_per_token=None):
        super().__init__()
        self.tokens_per_step, self.last, self.record, self.every = tokens_per_step, last, record, every
        self.final_times, self.characters_per_token = final_times, characters_per_token
        self.timed_from = None  # seconds and step after the first execution, which compiles
        self.step_seconds = self.validation_seconds = None
        self._shown = 0.0
        self.bar = Bar(
            desc=name,
            total=last * tokens_per_step,
            initial=first * tokens_per_step,
            unit="tok",
            unit_scale=True,
            dynamic_ncols=True,
            bar_format=Bar.FORMAT,
            disable=None,
        )

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        self._time(step)
        self.bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)
        self.bar.update(step * self.tokens_per_step - self.bar.n)

    def _time(self, step):
        if self.timed_from is None:
            self.timed_from = (self.record.seconds, step)
            return
        seconds, before = self.timed_from
        self.step_seconds = (self.record.seconds - seconds) / (step - before)
        if self.step_seconds:
            self.bar.speed = f"{tqdm.format_sizeof(self.tokens_per_step / self.step_seconds)}tok/s"
        validation = self.validation_seconds or 0.0
        left = seconds_left(step, self.last, self.every, self.step_seconds, validation, self.final_times * validation)
        more = ">" if self.validation_seconds is None else ""
        self.bar.left = more + tqdm.format_interval(left)

    def validation(self, measure):
        """What a function measures, shown while it does, and timed for those to come."""
        begun = time.perf_counter()
        with self._showing("validating"):
            summaries = measure()
        self.validation_seconds = time.perf_counter() - begun
        return summaries

    def final_scores(self, measure):
        """The same at the end."""
        with self._showing("scoring"):
            return measure()

    @contextlib.contextmanager
    def _showing(self, word):
        """While something is measured, the bar says what and how far."""
        self._say(word)

        def scored(share, total):
            if time.monotonic() - self._shown >= EVERY:
                self._say(f"{word} {self._size(total)}: {share:.0%}")

        with listening(scored):
            yield

    def _size(self, tokens):
        if self.characters_per_token is None:
            return f"{tokens:,} tokens"
        return f"{round(tokens * self.characters_per_token):,} characters"

    def _say(self, words):
        self._shown = time.monotonic()
        self.bar.set_postfix_str(words)

    def on_train_end(self, logs=None):
        self.bar.close()

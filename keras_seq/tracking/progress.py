"""Show bars on the terminal, by tqdm: of a training in tokens, and of a text that is scored."""

import contextlib
import contextvars
from collections.abc import Iterable, Iterator

import keras
from tqdm import tqdm

_scored_name = contextvars.ContextVar("scored_name", default=None)  # what `track_progress` shows; None shows nothing


@contextlib.contextmanager
def scoring_bar(name: str) -> Iterator[None]:
    """Show the progress of each text that is scored inside a `with` block, under a name."""
    token = _scored_name.set(name)
    try:
        yield
    finally:
        _scored_name.reset(token)


def track_progress(starts: range, total: int) -> Iterable[int]:
    """Iterate over the starts of a text's parts; inside `scoring_bar` show how many of them are done."""
    name = _scored_name.get()
    if name is None or len(starts) < 2:
        return starts
    return tqdm(starts, f"{name}, {total:,} tokens", unit="part", leave=False, dynamic_ncols=True, disable=None)


class ProgressBar(keras.callbacks.Callback):
    """Show the progress and the loss of a training in tokens."""

    def __init__(self, name: str, tokens_per_step: int, start_step: int, last_step: int):
        super().__init__()
        self.tokens_per_step = tokens_per_step
        total, initial = (step * tokens_per_step for step in (last_step, start_step))
        options = {"unit": "tok", "unit_scale": True, "dynamic_ncols": True, "disable": None}
        self.bar = tqdm(desc=name, total=total, initial=initial, **options)

    def on_train_batch_end(self, batch, logs=None):
        """Update the bar."""
        self.bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)
        self.bar.update(int(self.model.optimizer.step) * self.tokens_per_step - self.bar.n)

    def on_train_end(self, logs=None):
        """Close the bar."""
        self.bar.close()

"""How much a model gains from what it has read: its loss at each position of a window, from the zero state.

    loss[t] = mean over windows of  -log p(id at t + 1 | the ids up to t of that window)

Kaplan et al. (2020, figure 7): an LSTM's loss goes flat after some hundred positions, a Transformer's falls further.
"""

import numpy as np
from matplotlib.figure import Figure

from keras_seq.callbacks.diagnostic import Diagnostic
from keras_seq.callbacks.render import to_pixels
from keras_seq.evaluation.evaluator import get_evaluator
from keras_seq.tracking.summaries import Summaries


class LossByPosition(Diagnostic):
    """A curve under the Images tab, and the loss at positions 0, 7, 63, 511, ... as scalars `loss_by_position/7`.

    ```python
    LossByPosition(vocabulary.encode(validation_text), length=64, log_dir="logs/mine")
    ```

    Args:
        ids: `[N]`, not trained on.
        length: T, positions in a window.
        most: the most windows that are read, from the start of the ids; None reads all.
        **kwargs: those of `Look`. The model is any from ids `[B, T]` to logits `[B, T, V]`.

    Raises:
        ValueError: the ids make no window of that length, or a number is below 1.
    """

    def __init__(self, ids, length, max_windows=256, **kwargs):
        super().__init__(**kwargs)
        ids = np.asarray(ids)
        count = (len(ids) - 1) // length if length > 0 else 0
        if count < 1 or (max_windows is not None and max_windows < 1):
            raise ValueError(
                f"LossByPosition: {len(ids)} ids, length={length}, most={max_windows}; expected at least one window of "
                "at least one position, and one id behind it."
            )
        self.ids, self.length = ids[: min(count, max_windows or count) * length + 1], length

    def missing_requirement(self, model):
        return None

    def compute_summaries(self, model):
        losses = get_evaluator(model).chunked_token_losses(self.ids, self.length)
        mean = losses.mean(axis=0, dtype="float64")
        shown = [t for t in (8**n - 1 for n in range(8)) if t < self.length]
        scalars = {f"loss_by_position/{t}": float(mean[t]) for t in shown}
        return Summaries(scalars, images={"loss_by_position": plot_loss_by_position(mean, len(losses))})


def plot_loss_by_position(mean, windows) -> np.ndarray:
    """The curve `[T]` as pixels, positions on a logarithmic axis."""
    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(np.arange(1, len(mean) + 1), mean, marker="." if len(mean) <= 128 else None)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda position, _: f"{position:g}")
    axes.set_xlabel(f"tokens read of the window ({windows:,} windows)")
    axes.set_ylabel("nats per token")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return to_pixels(figure)

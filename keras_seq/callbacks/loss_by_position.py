"""Show how much a model gains from context: its loss at each position of a window, from the zero state.

    loss[t] = mean over windows of  -log p(id at t + 1 | the ids up to t of that window)

In Kaplan et al. (2020, arXiv:2001.08361, figure 7) an LSTM's loss is flat after some hundred positions, while a
Transformer's falls further.
"""

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_seq.callbacks.diagnostic import Diagnostic
from keras_seq.callbacks.render import to_pixels
from keras_seq.evaluation.evaluator import get_evaluator
from keras_seq.tracking.summaries import Summaries


class LossByPosition(Diagnostic):
    """Write a plot of the loss by position, and the loss at positions 0, 7, 63, 511, ... as `loss_by_position/7`.

    ```python
    LossByPosition(tokenizer.encode(validation_text), sequence_length=64, log_dir="logs/mine")
    ```

    The model is any from ids `[B, T]` to logits `[B, T, V]`.

    Args:
        ids: Integers `[N]` that are not trained on.
        sequence_length: T, tokens of a window.
        max_windows: Maximum number of windows to score, from the start of the ids; None scores all.
        **kwargs: Arguments of `Diagnostic`.

    Raises:
        ValueError: If the ids are fewer than a window and the next id, or a number is below 1.
    """

    def __init__(self, ids, sequence_length: int, max_windows: int | None = 256, **kwargs):
        super().__init__(**kwargs)
        ids = np.asarray(ids)
        windows = (len(ids) - 1) // sequence_length if sequence_length > 0 else 0
        if windows < 1 or (max_windows is not None and max_windows < 1):
            raise ValueError(
                f"LossByPosition: {len(ids)} ids, sequence_length={sequence_length}, max_windows={max_windows}; "
                "expected at least one window of at least one position, and one more id."
            )
        self.ids = ids[: min(windows, max_windows or windows) * sequence_length + 1]
        self.sequence_length = sequence_length

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return None: every language model has losses."""
        return None

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return the plot and the losses at a few positions."""
        losses = get_evaluator(model).chunked_token_losses(self.ids, self.sequence_length)
        mean = losses.mean(axis=0, dtype="float64")
        positions = [t for t in (8**n - 1 for n in range(8)) if t < self.sequence_length]
        scalars = {f"loss_by_position/{t}": float(mean[t]) for t in positions}
        return Summaries(scalars, images={"loss_by_position": plot_loss_by_position(mean, len(losses))})


def plot_loss_by_position(mean_losses: np.ndarray, windows: int) -> np.ndarray:
    """Plot the loss over a logarithmic axis of positions.

    Args:
        mean_losses: `[T]`, in nats per token.
        windows: Number of windows, for the label.

    Returns:
        uint8 `[height, width, 3]`.
    """
    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(np.arange(1, len(mean_losses) + 1), mean_losses, marker="." if len(mean_losses) <= 128 else None)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda position, _: f"{position:g}")
    axes.set_xlabel(f"tokens of context ({windows:,} windows)")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return to_pixels(figure)

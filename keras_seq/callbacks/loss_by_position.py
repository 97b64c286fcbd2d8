"""Show how much a model gains from context: its loss at each position of a window, from the zero state.

    loss[t] = mean over windows of  -log p(id at t + 1 | the ids up to t of that window)

In Kaplan et al. (2020, arXiv:2001.08361, figure 7) an LSTM's loss is flat after some hundred positions, while a
Transformer's falls further.
"""

import math

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_seq.callbacks.diagnostic import Diagnostic, model_arguments
from keras_seq.evaluation.evaluator import get_evaluator
from keras_seq.evaluation.validation_sample import sample_windows
from keras_seq.tracking.render import to_pixels
from keras_seq.tracking.summaries import Summaries

DESCRIPTIONS = {
    "loss_by_position": "Loss by position in a window, in nats per token. The line is the mean over the last quarter "
    "of the positions up to each. log V is the loss of a model that finds all V tokens equally likely.",
}


class LossByPosition(Diagnostic):
    """Write a plot of the loss by position, and curves of the loss at positions 0, 6 to 7, 48 to 63, ..., and the last.

    ```python
    LossByPosition(tokenizer.encode(validation_text), sequence_length=64, log_dir="logs/mine")
    ```

    Some hundred windows leave much noise in the loss at one position, so the curves are means over the last quarter of
    the positions up to 7, 63, ...; metrics.jsonl has the losses at positions 0, 7, 63, ... as `loss_by_position/7`.
    The model is any from ids `[B, T]` to logits `[B, T, V]`.

    Args:
        ids: Integers `[N]` that are not trained on.
        sequence_length: T, tokens of a window.
        max_windows: Maximum number of windows to score, spread evenly over the ids; None scores all.
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
        self.ids, self.sequence_length = ids, sequence_length
        self.sample = sample_windows(ids, sequence_length, max_windows or windows)

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return a phrase if the model takes more than ids; every language model has losses."""
        return model_arguments(model)

    def try_model(self, model: keras.Model) -> None:
        """Score one window."""
        get_evaluator(model).chunked_token_losses(self.ids[: self.sequence_length + 1], self.sequence_length)

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return the plot and the losses at a few positions."""
        evaluator = get_evaluator(model)
        losses = evaluator.chunked_token_losses(self.ids, self.sequence_length, self.sample)
        mean = losses.mean(axis=0, dtype="float64")
        smoothed, starts = quarter_means(mean)
        positions = [t for t in (8**n - 1 for n in range(8)) if t < self.sequence_length]
        scalars = {f"loss_by_position/{t}": float(mean[t]) for t in positions}
        curves, descriptions = {}, {}
        for t in dict.fromkeys([*positions, self.sequence_length - 1]):
            where = f"positions {starts[t]} to {t}" if starts[t] < t else f"position {t}"
            name = f"loss_by_position/{where.partition(' ')[2]}"
            curves[name] = float(smoothed[t])
            descriptions[name] = f"Loss at {where} (nats per token)."
        image = plot_loss_by_position(mean, len(losses), evaluator.vocabulary_size)
        return Summaries(scalars, {}, {"loss_by_position": image}, {}, curves, {**DESCRIPTIONS, **descriptions})


def quarter_means(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means over the last quarter of the positions up to each, and where that quarter starts; `[T]` each.

    Args:
        losses: `[T]`.
    """
    ends = np.arange(1, len(losses) + 1)
    starts = ends - np.maximum(ends // 4, 1)
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    return (sums[ends] - sums[starts]) / (ends - starts), starts


def plot_loss_by_position(mean_losses: np.ndarray, windows: int, vocabulary_size: int | None = None) -> np.ndarray:
    """Plot the loss over a logarithmic axis of positions: a dot for each, a line for the means over a quarter.

    Args:
        mean_losses: `[T]`, in nats per token.
        windows: Number of windows, for the label.
        vocabulary_size: V; the vertical axis is 0 to log V, so that the plots of several models compare, or to a higher
            loss.

    Returns:
        uint8 `[height, width, 3]`.
    """
    figure = Figure(figsize=(3.5, 2.8), layout="constrained")
    axes = figure.subplots()
    context = np.arange(1, len(mean_losses) + 1)
    axes.plot(context, mean_losses, ".", alpha=0.3, markeredgewidth=0)
    axes.plot(context, quarter_means(mean_losses)[0], color="C0")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda position, _: f"{position:g}")
    axes.set_ylim(0)
    if vocabulary_size is not None:
        uniform = math.log(vocabulary_size)
        axes.axhline(uniform, color="0.5", linestyle=":")
        style = {"ha": "right", "va": "top", "fontsize": 8, "color": "0.4"}
        axes.text(len(mean_losses), 0.98 * uniform, f"uniform: log {vocabulary_size:,}", **style)
        axes.set_ylim(0, 1.05 * max(uniform, mean_losses.max()))
    axes.set_xlabel(f"tokens of context ({windows:,} windows)")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return to_pixels(figure)

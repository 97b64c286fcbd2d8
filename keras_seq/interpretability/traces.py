"""Trace what a language model computes for a text, and plot it.

probabilities    [T, V]       of the next token at each position
attention        [H, T, T]    of each Transformer block: queries in rows, keys in columns
activations      [T, units]   of each LSTM: the gates i, f and o, the candidate g, the cell state c, the output h;
                              in a model with neither attention nor LSTM, the output of each block

A plot has the text along its axes, where · is a space and ⏎ a line break:

attention of a block     a panel for each head
a layer's activations    a panel for each signal: the most variable units in rows, the text in columns
next                     the most likely next tokens at each position, in lines like the text
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras import ops

from keras_seq.generation.search import log_softmax
from keras_seq.interpretability.activations import attention_weights, record_calls
from keras_seq.layers import LSTM
from keras_seq.layers.introspection import check_tokenizer, pre_activations
from keras_seq.models import LanguageModel
from keras_seq.tracking.summaries import LABEL_STYLE, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNAL_NAMES = {
    "h": "output h",
    "c": "cell state c",
    "i": "input gate i",
    "f": "forget gate f",
    "g": "candidate g",
    "o": "output gate o",
    "y": "output",
}


@dataclasses.dataclass(frozen=True)
class ModelTrace:
    """Hold what a model computes for a text of T tokens."""

    tokens: tuple[str, ...]
    ids: np.ndarray
    probabilities: np.ndarray  # float64
    attention: dict[str, np.ndarray]  # by the name of the block
    activations: dict[str, dict[str, np.ndarray]]  # by the name of the layer and the key of SIGNAL_NAMES
    decode: Callable[[list[int]], str]

    def top_predictions(self, top: int = 5) -> list[list[tuple[str, float]]]:
        """Return the most likely next tokens and their probabilities at each position, most likely first.

        Args:
            top: Number of tokens.
        """
        order = np.argsort(-self.probabilities, axis=-1, kind="stable")[:, :top]
        texts = {n: self.decode([n]) for n in np.unique(order).tolist()}
        rows = zip(order.tolist(), self.probabilities, strict=True)
        return [[(texts[n], float(probabilities[n])) for n in row] for row, probabilities in rows]

    def next_token_ranks(self) -> list[tuple[int, float]]:
        """Return the rank (0: most likely) and probability of the actual next token, at each position but the last."""
        order = np.argsort(-self.probabilities[:-1], axis=-1, kind="stable")
        ranks = np.argmax(order == self.ids[1:, None], axis=-1)
        probabilities = self.probabilities[np.arange(len(ranks)), self.ids[1:]]
        return list(zip(ranks.tolist(), probabilities.tolist(), strict=True))


def lstm_signals(layer: LSTM, x, y, reset_mask=None) -> dict[str, np.ndarray]:
    """Compute the signals `[T, units]` of an LSTM by the equations of docs/rnn-lstm.md, from a row of a call."""
    i, f, g, o = ops.split(pre_activations(layer, x, y, reset_mask=reset_mask)[0], 4, axis=-1)
    i, f, o = (_numpy(layer.recurrent_activation(z)) for z in (i, f, o))
    g = _numpy(layer.activation(g))
    is_first = np.arange(len(g)) == 0 if reset_mask is None else _numpy(reset_mask[0])
    c = np.zeros_like(i)
    for t in range(len(c)):
        c[t] = i[t] * g[t] + (f[t] * c[t - 1] if t and not is_first[t] else 0)
    signals = {"i": i, "f": f, "g": g, "o": o, "c": c, "h": o * _numpy(layer.activation(ops.convert_to_tensor(c)))}
    return {letter: signals[letter] for letter in SIGNAL_NAMES if letter in signals}


def trace_model(model: keras.Model, tokenizer, ids) -> ModelTrace:
    """Run a language model on a text and record what it computes.

    Args:
        model: A `LanguageModel`.
        tokenizer: The tokenizer of its ids.
        ids: Ids `[T]`, at most as many as the context length.

    Raises:
        ValueError: If it is another model, such as an `Ensemble`, its tokenizer has another vocabulary size, or a logit
            is not finite.
    """
    if not isinstance(model, LanguageModel):
        kind = type(model).__name__
        raise ValueError(f"{model.name} is of the class {kind}; expected a LanguageModel, such as one of its members.")
    check_tokenizer(tokenizer, model)
    ids = np.asarray(ids)
    with record_calls(model.blocks, "call") as calls:
        log_p = log_softmax(model(ids[None], training=False)[0])
    attention = {name: weights[0] for name, weights in attention_weights(model, ids[None]).items()}
    activations, outputs = {}, {}
    for block, args, kwargs, y in calls:
        if type(block) is LSTM:  # subclasses have other equations
            activations[block.name] = lstm_signals(block, args[0], y, kwargs.get("reset_mask"))
        if not isinstance(block, keras.layers.Dropout):
            outputs[block.name] = {"y": _numpy(y[0])}
    if not attention and not activations:
        activations = outputs
    tokens = tuple(tokenizer.decode([n]) for n in ids.tolist())
    return ModelTrace(tokens, ids, np.exp(log_p), attention, activations, tokenizer.decode)


def most_variable_units(signal, count: int) -> np.ndarray:
    """Return the units of a signal whose standard deviation is highest, in descending order."""
    return np.argsort(-signal.std(axis=0), kind="stable")[:count]


def _numpy(x) -> np.ndarray:
    return ops.convert_to_numpy(ops.cast(x, "float32"))


MAX_UNITS, MAX_PLOTTED = 16, 100  # units of a layer, tokens of a plot
LINE_WIDTH, CELL_HEIGHT, LETTER_WIDTH = 9.6, 0.24, 0.065  # of the plot of predictions, in inches
SEQUENTIAL_COLORMAP = "Oranges"
DIVERGING_COLORMAP = "RdBu_r"


def plot_trace(trace: ModelTrace) -> Iterator[tuple[str, "Figure"]]:
    """Yield the name and figure of every plot of the last MAX_PLOTTED tokens: next, attention_BLOCK, activations_LAYER.

    ```python
    for name, figure in plot_trace(trace_model(model, tokenizer, tokenizer.encode("To be"))):
        figure.savefig(f"{name}.png")
    ```
    """
    last = slice(-MAX_PLOTTED, None)
    trace = dataclasses.replace(
        trace,
        tokens=trace.tokens[last],
        ids=trace.ids[last],
        probabilities=trace.probabilities[last],
        attention={name: maps[:, last, last] for name, maps in trace.attention.items()},
        activations={name: {k: v[last] for k, v in signals.items()} for name, signals in trace.activations.items()},
    )
    yield "next", predictions_figure(trace)
    for name, maps in trace.attention.items():
        yield f"attention_{name}", attention_figure(name, maps, trace.tokens)
    for name, signals in trace.activations.items():
        yield f"activations_{name}", activations_figure(name, signals, trace.tokens)


def attention_figure(name: str, maps: np.ndarray, tokens: Sequence[str]) -> "Figure":
    """Plot the attention weights of a block on one color scale that enhances low weights."""
    from matplotlib.colors import PowerNorm

    columns = min(len(maps), 2 if len(tokens) > 24 else 4)
    rows = -(-len(maps) // columns)
    side = max(2.6, 0.11 * len(tokens) + 0.5)
    figure, axes = _panels(rows, columns, (columns * side + 1, rows * side + 0.6))
    for head, panel in enumerate(axes.flat):
        if head >= len(maps):
            panel.axis("off")
            continue
        visible = np.where(maps[head] > 0, maps[head], np.nan)  # masked keys stay white
        image = panel.imshow(visible, cmap=SEQUENTIAL_COLORMAP, norm=PowerNorm(0.5, 0, 1))
        panel.set_title(f"head {head + 1}", fontsize=9)
        panel.set_yticks(range(len(tokens)), [label(token) for token in tokens], **LABEL_STYLE)
        _frame(panel, tokens)
    figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, label="attention weight", ticks=[0, 0.05, 0.2, 0.5, 1])
    figure.suptitle(f"{name}: queries in rows, keys in columns", fontsize=10)
    return figure


def activations_figure(name: str, signals: dict[str, np.ndarray], tokens: Sequence[str]) -> "Figure":
    """Plot the signals of a layer below each other, for the MAX_UNITS units whose first signal varies most."""
    first = next(iter(signals))
    units = most_variable_units(signals[first], MAX_UNITS)
    size = max(5, 0.13 * len(tokens) + 1.8), len(signals) * (0.13 * len(units) + 0.6)
    figure, axes = _panels(len(signals), 1, size)
    for (letter, signal), panel in zip(signals.items(), axes.flat, strict=True):
        values, is_gate = signal[:, units].T, letter in "ifo"
        limit = 1 if letter in "ifogh" else max(float(np.abs(values).max()), 1e-6)
        colormap, low = (SEQUENTIAL_COLORMAP, 0) if is_gate else (DIVERGING_COLORMAP, -limit)
        image = panel.imshow(values, cmap=colormap, vmin=low, vmax=limit, aspect="auto")
        panel.set_title(SIGNAL_NAMES[letter], fontsize=9, loc="left")
        panel.set_yticks(range(len(units)), map(str, units), fontsize=6)
        _frame(panel, tokens)
        figure.colorbar(image, ax=panel, aspect=12, pad=0.01)
    figure.suptitle(f"{name}: the {len(units)} units with the most variable {SIGNAL_NAMES[first]}", fontsize=10)
    return figure


def predictions_figure(trace: ModelTrace, top: int = 5) -> "Figure":
    """Plot the most likely next tokens at each position, shaded by probability, the actual one in a frame."""
    from matplotlib.patches import Rectangle

    predictions, next_ranks = trace.top_predictions(top), trace.next_token_ranks()
    top = len(predictions[0])
    longest = max(len(label(token)) for ranks in predictions for token, _ in ranks)
    cell_width = max(CELL_HEIGHT, LETTER_WIDTH * longest + 0.1)
    columns = min(max(1, int(LINE_WIDTH / cell_width)), len(predictions))
    lines = -(-len(predictions) // columns)
    line_height = CELL_HEIGHT * (top + 2) + LETTER_WIDTH * max(len(label(token)) for token in trace.tokens)
    figure, axes = _panels(lines, 1, (max(5, cell_width * columns + 1.4), lines * line_height + 0.5))
    for first, panel in zip(range(0, len(predictions), columns), axes.flat, strict=True):
        part = slice(first, first + columns)
        shades = np.full((top, columns), np.nan)
        for x, ranks in enumerate(predictions[part]):
            for y, (token, p) in enumerate(ranks):
                shades[y, x] = p
                color = "white" if p > 0.6 else "black"
                panel.text(x, y, label(token), ha="center", va="center", color=color, **LABEL_STYLE)
        image = panel.imshow(shades, cmap=SEQUENTIAL_COLORMAP, vmin=0, vmax=1, aspect="auto")
        for x, (rank, _) in enumerate(next_ranks[part]):
            if rank < top:
                panel.add_patch(Rectangle((x - 0.46, rank - 0.46), 0.92, 0.92, fill=False, linewidth=0.9))
        panel.set_yticks(range(top), range(1, top + 1), fontsize=6)
        _frame(panel, trace.tokens[part])
        panel.xaxis.tick_top()
        panel.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, aspect=12 * lines, pad=0.01, label="probability")
    title = "Most likely next tokens after each token of the text (top line); framed: the actual next token"
    figure.suptitle(title, fontsize=10)
    return figure


def _panels(rows, columns, size):
    from matplotlib.figure import Figure  # imported late, as below and above: only plots need it

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _frame(panel, tokens):
    """Label the horizontal axis with tokens, rotated if one is longer than a character, in a faint frame."""
    labels = [label(token) for token in tokens]
    panel.set_xticks(range(len(labels)), labels, rotation=90 if max(map(len, labels)) > 1 else 0, **LABEL_STYLE)
    panel.tick_params(length=0, pad=1)
    panel.spines[:].set_color("0.8")

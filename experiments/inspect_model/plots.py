"""Plots of a `ModelTrace`, with the text along the axes:  ·  a space,  ⏎  a line break.

attention of a block     a panel for each head: queries in rows, keys in columns
a layer's activations    a panel for each signal: the most variable units in rows, the text in columns
next                     the most likely next tokens at each position, in lines like the text
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle

from experiments.inspect_model.trace import SIGNAL_NAMES, ModelTrace, most_variable_units
from keras_seq.callbacks.render import LABEL_STYLE, label

MAX_UNITS = 16  # of a layer
LINE_WIDTH, CELL_HEIGHT, LETTER_WIDTH = 9.6, 0.24, 0.065  # of the plot of predictions, in inches
SEQUENTIAL_COLORMAP = "Oranges"
DIVERGING_COLORMAP = "RdBu_r"


def plot_all(trace: ModelTrace):
    """Yield the name and figure of every plot of a trace."""
    yield "next", predictions_figure(trace)
    for name, maps in trace.attention.items():
        yield f"attention_{name}", attention_figure(name, maps, trace.tokens)
    for name, signals in trace.activations.items():
        yield f"activations_{name}", activations_figure(name, signals, trace.tokens)


def label_tokens(axis, tokens):
    """Label an axis with the tokens of the text, rotated if one is longer than a character.

    Args:
        axis: Matplotlib axis.
        tokens: T tokens.
    """
    labels = [label(token) for token in tokens]
    axis.set_ticks(range(len(labels)), labels, rotation=90 if max(map(len, labels)) > 1 else 0, **LABEL_STYLE)


def attention_figure(name: str, maps, tokens):
    """Plot the heads of a block on one color scale that enhances low weights.

    Args:
        name: Name of the block.
        maps: Attention weights `[H, T, T]`.
        tokens: T tokens.
    """
    columns = min(len(maps), 2 if len(tokens) > 24 else 4)
    rows = -(-len(maps) // columns)
    side = max(2.6, 0.11 * len(tokens) + 0.5)
    figure, axes = plt.subplots(
        rows, columns, figsize=(columns * side + 1, rows * side + 0.6), layout="constrained", squeeze=False
    )
    for head, panel in enumerate(axes.flat):
        if head >= len(maps):
            panel.axis("off")
            continue
        visible = np.where(maps[head] > 0, maps[head], np.nan)  # masked keys stay white
        image = panel.imshow(visible, cmap=SEQUENTIAL_COLORMAP, norm=PowerNorm(0.5, 0, 1))
        panel.set_title(f"head {head + 1}", fontsize=9)
        label_tokens(panel.xaxis, tokens)
        panel.set_yticks(range(len(tokens)), [label(token) for token in tokens], **LABEL_STYLE)
        panel.tick_params(length=0, pad=1)
        panel.spines[:].set_color("0.8")
    figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, label="attention weight", ticks=[0, 0.05, 0.2, 0.5, 1])
    figure.suptitle(f"{name}: queries in rows, keys in columns", fontsize=10)
    return figure


def activations_figure(name: str, signals, tokens):
    """Plot the signals of a layer below each other, for the units whose first signal varies most.

    Args:
        name: Name of the layer.
        signals: A dict from each letter to activations `[T, units]`.
        tokens: T tokens.
    """
    units = most_variable_units(next(iter(signals.values())), MAX_UNITS)
    width = max(5, 0.13 * len(tokens) + 1.8)
    figure, axes = plt.subplots(
        len(signals), 1, figsize=(width, len(signals) * (0.13 * len(units) + 0.6)), layout="constrained", squeeze=False
    )
    for (letter, signal), panel in zip(signals.items(), axes.flat, strict=True):
        values = signal[:, units].T
        is_gate = letter in "ifo"
        limit = 1 if letter in "ifogh" else max(float(np.abs(values).max()), 1e-6)
        image = panel.imshow(
            values,
            cmap=SEQUENTIAL_COLORMAP if is_gate else DIVERGING_COLORMAP,
            vmin=0 if is_gate else -limit,
            vmax=limit,
            aspect="auto",
        )
        panel.set_title(SIGNAL_NAMES[letter], fontsize=9, loc="left")
        label_tokens(panel.xaxis, tokens)
        panel.set_yticks(range(len(units)), [str(unit) for unit in units], fontsize=6)
        panel.tick_params(length=0, pad=1)
        panel.spines[:].set_color("0.8")
        figure.colorbar(image, ax=panel, aspect=12, pad=0.01)
    figure.suptitle(
        f"{name}: the {len(units)} units with the most variable {SIGNAL_NAMES[next(iter(signals))]}", fontsize=10
    )
    return figure


def predictions_figure(trace: ModelTrace, top: int = 5):
    """Plot the most likely next tokens at each position, shaded by probability, the actual one in a frame.

    Args:
        trace: What the model computes.
        top: Number of tokens at each position.
    """
    predictions, next_ranks = trace.top_predictions(top), trace.next_token_ranks()
    top = len(predictions[0])
    max_label = max(len(label(token)) for ranks in predictions for token, _ in ranks)
    cell_width = max(CELL_HEIGHT, LETTER_WIDTH * max_label + 0.1)
    columns = min(int(LINE_WIDTH / cell_width), len(predictions))
    lines = -(-len(predictions) // columns)
    label_height = LETTER_WIDTH * max(len(label(token)) for token in trace.tokens)
    height = lines * (CELL_HEIGHT * (top + 2) + label_height) + 0.5
    figure, axes = plt.subplots(
        lines, 1, figsize=(max(5, cell_width * columns + 1.4), height), layout="constrained", squeeze=False
    )
    for line, panel in enumerate(axes.flat):
        first = line * columns
        line_predictions = predictions[first : first + columns]
        shades = np.full((top, columns), np.nan)
        shades[:, : len(line_predictions)] = np.array([[p for _, p in ranks] for ranks in line_predictions]).T
        image = panel.imshow(shades, cmap=SEQUENTIAL_COLORMAP, vmin=0, vmax=1, aspect="auto")
        for x, ranks in enumerate(line_predictions):
            for y, (token, p) in enumerate(ranks):
                color = "white" if p > 0.6 else "black"
                panel.text(x, y, label(token), ha="center", va="center", color=color, **LABEL_STYLE)
        for x, (rank, _) in enumerate(next_ranks[first : first + columns]):
            if rank < top:
                panel.add_patch(Rectangle((x - 0.46, rank - 0.46), 0.92, 0.92, fill=False, linewidth=0.9))
        label_tokens(panel.xaxis, trace.tokens[first : first + len(line_predictions)])
        panel.xaxis.tick_top()
        panel.set_yticks(range(top), [str(rank + 1) for rank in range(top)], fontsize=6)
        panel.tick_params(length=0, pad=2)
        panel.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, aspect=12 * lines, pad=0.01, label="probability")
    figure.suptitle(
        "Most likely next tokens after each token of the text (top line); framed: the actual next token", fontsize=10
    )
    return figure

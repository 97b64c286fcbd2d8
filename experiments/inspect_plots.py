"""Pictures of a `Reading`, with the text along the axes:  ·  a space,  ⏎  a line break.

attention of a block     a map for each head: who (row) looks at whom (column)
a layer's activations    a map for each signal: the units that change most (rows) along the text
next                     the likeliest tokens behind each position, likeliest on top, in lines as a text has them
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle

from experiments.inspect_reading import SIGNALS, Reading, most_varied
from keras_seq.callbacks.render import LETTERS, label

UNITS = 16  # shown of a layer
LINE, CELL, LETTER = 9.6, 0.24, 0.065  # inches: a line of the picture of what comes next, a cell, a letter
ONE_HUE = "Oranges"
TWO_HUES = "RdBu_r"


def figures(reading: Reading):
    """Every picture of a reading: yields names and figures."""
    yield "next", next_figure(reading)
    for name, maps in reading.attention.items():
        yield f"attention_{name}", attention_figure(name, maps, reading.pieces)
    for name, signals in reading.activations.items():
        yield f"activations_{name}", activations_figure(name, signals, reading.pieces)


def along(axis, pieces):
    """Writes the text along the x axis; upright where a token is longer than a character."""
    labels = [label(piece) for piece in pieces]
    axis.set_ticks(range(len(labels)), labels, rotation=90 if max(map(len, labels)) > 1 else 0, **LETTERS)


def attention_figure(name, maps, pieces):
    """The heads of one block side by side, on one scale; weak attention is lifted, so that it can be seen."""
    columns = min(len(maps), 2 if len(pieces) > 24 else 4)
    rows = -(-len(maps) // columns)
    side = max(2.6, 0.11 * len(pieces) + 0.5)
    figure, axes = plt.subplots(
        rows, columns, figsize=(columns * side + 1, rows * side + 0.6), layout="constrained", squeeze=False
    )
    for head, pane in enumerate(axes.flat):
        if head >= len(maps):
            pane.axis("off")
            continue
        seen = np.where(maps[head] > 0, maps[head], np.nan)  # what it cannot see stays white
        image = pane.imshow(seen, cmap=ONE_HUE, norm=PowerNorm(0.5, 0, 1))
        pane.set_title(f"head {head + 1}", fontsize=9)
        along(pane.xaxis, pieces)
        pane.set_yticks(range(len(pieces)), [label(piece) for piece in pieces], **LETTERS)
        pane.tick_params(length=0, pad=1)
        pane.spines[:].set_color("0.8")
    figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, label="attention", ticks=[0, 0.05, 0.2, 0.5, 1])
    figure.suptitle(f"{name}: where each position (row) looks (columns)", fontsize=10)
    return figure


def activations_figure(name, signals, pieces):
    """The signals of one layer, one above the other, for the same units: those whose output changes most."""
    units = most_varied(next(iter(signals.values())), UNITS)
    width = max(5, 0.13 * len(pieces) + 1.8)
    figure, axes = plt.subplots(
        len(signals), 1, figsize=(width, len(signals) * (0.13 * len(units) + 0.6)), layout="constrained", squeeze=False
    )
    for (letter, signal), pane in zip(signals.items(), axes.flat, strict=True):
        shown = signal[:, units].T
        gate = letter in "ifo"
        most = 1 if letter in "ifogh" else max(float(np.abs(shown).max()), 1e-6)
        image = pane.imshow(
            shown, cmap=ONE_HUE if gate else TWO_HUES, vmin=0 if gate else -most, vmax=most, aspect="auto"
        )
        pane.set_title(SIGNALS[letter], fontsize=9, loc="left")
        along(pane.xaxis, pieces)
        pane.set_yticks(range(len(units)), [str(unit) for unit in units], fontsize=6)
        pane.tick_params(length=0, pad=1)
        pane.spines[:].set_color("0.8")
        figure.colorbar(image, ax=pane, aspect=12, pad=0.01)
    figure.suptitle(f"{name}: the {len(units)} units whose {SIGNALS[next(iter(signals))]} changes most", fontsize=10)
    return figure


def next_figure(reading: Reading, top=5):
    """Behind each position the likeliest tokens, shaded by probability; a frame around what does come."""
    likeliest, nexts = reading.likeliest(top), reading.nexts()
    top = len(likeliest[0])
    longest = max(len(label(piece)) for ranks in likeliest for piece, _ in ranks)
    cell = max(CELL, LETTER * longest + 0.1)
    columns = min(int(LINE / cell), len(likeliest))
    lines = -(-len(likeliest) // columns)
    height = lines * (CELL * (top + 2) + LETTER * max(len(label(piece)) for piece in reading.pieces)) + 0.5
    figure, axes = plt.subplots(
        lines, 1, figsize=(max(5, cell * columns + 1.4), height), layout="constrained", squeeze=False
    )
    for line, pane in enumerate(axes.flat):
        first = line * columns
        here = likeliest[first : first + columns]
        shades = np.full((top, columns), np.nan)
        shades[:, : len(here)] = np.array([[p for _, p in ranks] for ranks in here]).T
        image = pane.imshow(shades, cmap=ONE_HUE, vmin=0, vmax=1, aspect="auto")
        for x, ranks in enumerate(here):
            for y, (piece, p) in enumerate(ranks):
                colour = "white" if p > 0.6 else "black"
                pane.text(x, y, label(piece), ha="center", va="center", color=colour, **LETTERS)
        for x, (rank, _) in enumerate(nexts[first : first + columns]):
            if rank < top:
                pane.add_patch(Rectangle((x - 0.46, rank - 0.46), 0.92, 0.92, fill=False, linewidth=0.9))
        along(pane.xaxis, reading.pieces[first : first + len(here)])
        pane.xaxis.tick_top()
        pane.set_yticks(range(top), [str(rank + 1) for rank in range(top)], fontsize=6)
        pane.tick_params(length=0, pad=2)
        pane.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, aspect=12 * lines, pad=0.01, label="probability")
    figure.suptitle("Behind each token of the text (top line) the likeliest; framed: what comes", fontsize=10)
    return figure

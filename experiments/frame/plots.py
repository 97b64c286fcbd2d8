"""Plots in one style (style.mplstyle): a color for each model, faint grids, labels that do not collide."""

import math
import os
import pathlib
from collections.abc import Sequence

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from experiments.frame.tables import thousands
from keras_seq.files import atomic_write
from keras_seq.tracking.summaries import is_of_sample, scored_key, to_pixels
from keras_seq.training import read_metrics

plt.style.use(pathlib.Path(__file__).with_name("style.mplstyle"))


def subplots(*args, **kwargs):
    """Return `plt.subplots(...)` with faint grids and room for all labels."""
    figure, axes = plt.subplots(*args, layout="constrained", **kwargs)
    for each in np.ravel(axes):
        each.grid(alpha=0.25)
    return figure, axes


def subplot_mosaic(layout: Sequence, **kwargs):
    """Return `plt.subplot_mosaic(...)`, the figure and its axes by name, with faint grids and room for all labels."""
    figure, axes = plt.subplot_mosaic(layout, layout="constrained", **kwargs)
    for each in axes.values():
        each.grid(alpha=0.25)
    return figure, axes


def save(figure: Figure, path: str | os.PathLike[str]):
    """Write the figure as a PNG and close it."""
    with atomic_write(path) as temporary:
        figure.savefig(temporary)
    plt.close(figure)


def pixels(figure: Figure) -> np.ndarray:
    """Render the figure as uint8 `[height, width, 3]` and close it."""
    image = to_pixels(figure)
    plt.close(figure)
    return image


def colors(names: Sequence[str]) -> dict[str, str]:
    """Return a color for each name, in order."""
    return {name: f"C{n % 10}" for n, name in enumerate(dict.fromkeys(names))}


def curve(run: pathlib.Path, key: str = "val_loss", split: str = "validation") -> tuple[list[int], list[float]]:
    """Return the training tokens and the values of the points of a curve of a run, of a sample where one was scored."""
    points = [(line["tokens"], line[scored_key(key, line)]) for line in read_metrics(run, split)]
    return tuple(map(list, zip(*points, strict=True)))


def sample_note(run: pathlib.Path) -> str:
    """Return " of a sample" if the validations of a run scored a sample of the validation data, else ""."""
    return " of a sample" if any(is_of_sample(key) for line in read_metrics(run, "validation") for key in line) else ""


def token_axis(axes: Axes, label: str = "training tokens"):
    """Label the horizontal axis, with ticks such as 1.5 M."""
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel(label)


def legend(axes: Axes | Figure, colors: dict[str, str], styles: dict[str, dict] | None = None, **options):
    """Draw one legend of colors by name, then of line styles by name in gray."""
    handles = [Line2D([], [], color=color, linewidth=2.2, label=name) for name, color in colors.items()]
    gray = [Line2D([], [], label=name, **{"color": "0.3", **style}) for name, style in (styles or {}).items()]
    axes.legend(handles=[*handles, *gray], **options)


def spread(values: Sequence[float], distance: float) -> list[float]:
    """Return values moved up as little as needed to be `distance` apart, in the order of the given ones."""
    moved, last = [0.0] * len(values), -math.inf
    for index in np.argsort(values, kind="stable"):
        last = moved[index] = max(values[index], last + distance)
    return moved


def label_ends(axes: Axes, ends: dict[str, tuple[float, float, str]]):
    """Label the ends of curves at the right, moved apart where labels would overlap.

    Args:
        axes: Axes of the curves.
        ends: From a label to the end of its curve and its color, `(x, y, color)`.
    """
    low, high = axes.get_ylim()
    for (name, (x, y, color)), label_y in zip(
        ends.items(), spread([y for _, y, _ in ends.values()], 0.045 * (high - low)), strict=True
    ):
        line = {"arrowstyle": "-", "color": color, "alpha": 0.5, "linewidth": 0.8, "relpos": (0, 0.5), "shrinkA": 0}
        axes.annotate(name, (x, y), (1.07 * x, label_y), va="center", color=color, fontsize=9, arrowprops=line)
    if ends:
        axes.set_xlim(right=1.34 * max(x for x, _, _ in ends.values()))

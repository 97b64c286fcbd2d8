"""Plots in one style: a color for each model, a line style for each score, faint grids, labels that do not collide."""

import contextlib
import math
import os
import pathlib
from collections.abc import Iterator, Sequence

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from keras_seq.files import atomic_write
from keras_seq.reports.tables import thousands
from keras_seq.tracking.summaries import SAMPLE, scored_key, to_pixels
from keras_seq.training import read_metrics

MAX_NAME = 28  # characters of a label
NUM_COLORS = 20
STYLE = {
    **{"savefig.dpi": 130, "lines.linewidth": 1.7, "lines.markersize": 3.5, "font.size": 10},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True},
    **{"legend.frameon": False, "legend.fontsize": 9},
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Plot in this style and without a screen inside of the block; plots of the calling program keep theirs."""
    backend = plt.get_backend()
    with plt.rc_context(STYLE):
        plt.switch_backend("Agg")
        try:
            yield
        finally:
            plt.switch_backend(backend)


def subplots(*args, **kwargs):
    """Return `plt.subplots(...)` with faint grids and room for all labels."""
    return _with_grids(*plt.subplots(*args, layout="constrained", **kwargs))


def subplot_mosaic(layout: Sequence, **kwargs):
    """Return `plt.subplot_mosaic(...)`, the figure and its axes by name, with faint grids and room for all labels."""
    return _with_grids(*plt.subplot_mosaic(layout, layout="constrained", **kwargs))


def _with_grids(figure, axes):
    for each in figure.axes:
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
    """Return a color for each name, in order: ten, then ten that are lighter."""
    lighter = matplotlib.colormaps["tab20"].colors[1::2]
    palette = [*(f"C{n}" for n in range(10)), *lighter]
    return {name: palette[n % NUM_COLORS] for n, name in enumerate(dict.fromkeys(names))}


def curve(run: pathlib.Path, key: str = "val_loss", split: str = "validation") -> tuple[list[int], list[float]]:
    """Return the training tokens and the values of the points of a curve of a run, of a sample where one was scored."""
    points = [(line["tokens"], line[scored_key(key, line)]) for line in read_metrics(run, split)]
    return tuple(map(list, zip(*points, strict=True)))


def sample_note(run: pathlib.Path) -> str:
    """Return " of a sample" if the validations of a run scored a sample of the validation data, else ""."""
    keys = (key for line in read_metrics(run, "validation") for key in line)
    return " of a sample" if any(key.endswith(SAMPLE) for key in keys) else ""


def token_axis(axes: Axes, label: str = "training tokens"):
    """Label the horizontal axis, with ticks such as 1.5 M."""
    axes.xaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel(label)


def legend(axes: Axes | Figure, colors: dict[str, str], styles: dict[str, dict] | None = None, **options):
    """Draw one legend of colors by name, then of line styles by name in gray."""
    handles = [Line2D([], [], color=color, linewidth=2.2, label=shortened(name)) for name, color in colors.items()]
    gray = [Line2D([], [], label=name, **{"color": "0.3", **style}) for name, style in (styles or {}).items()]
    axes.legend(handles=[*handles, *gray], **options)


def shortened(name: str) -> str:
    """Return the beginning and the end of a name that is too long for a plot, such as that of a folder."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME // 2]}…{name[-MAX_NAME // 2 :]}"


def spread(values: Sequence[float], distance: float) -> list[float]:
    """Return values moved up as little as needed to be `distance` apart, in the order of the given ones."""
    moved, last = [0.0] * len(values), -math.inf
    for index in np.argsort(values, kind="stable"):
        last = moved[index] = max(values[index], last + distance)
    return moved


def label_ends(axes: Axes, ends: dict[str, tuple[float, float, str]]):
    """Label the ends `(x, y, color)` of curves at the right, moved apart where labels would overlap."""
    low, high = axes.get_ylim()
    heights = spread([y for _, y, _ in ends.values()], 0.045 * (high - low))
    for (name, (x, y, color)), label_y in zip(ends.items(), heights, strict=True):
        line = {"arrowstyle": "-", "color": color, "alpha": 0.5, "linewidth": 0.8, "relpos": (0, 0.5), "shrinkA": 0}
        axes.annotate(name, (x, y), (1.07 * x, label_y), va="center", color=color, fontsize=9, arrowprops=line)
    if ends:
        axes.set_xlim(right=1.34 * max(x for x, _, _ in ends.values()))


def model_colors(rows: Sequence[dict]) -> dict[str, str]:
    """Return a color for the model of each row."""
    return colors([row["model"] for row in rows])


def task_curves(axes: Axes, folder: pathlib.Path, rows: Sequence[dict], styles: dict[str, dict]):
    """Draw the validations of every run during training, a line for each score in `styles`."""
    for row, color in zip(rows, model_colors(rows).values(), strict=True):
        for key, style in styles.items():
            axes.plot(*curve(folder / row["run"], key), color=color, **style)
    token_axis(axes)


def accuracy_axis(axes: Axes):
    """Let the vertical axis show 0 to 100 %."""
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1))


def by_group(axes: Axes, rows: Sequence[dict], styles: dict[str, dict], label: str):
    """Draw scores over groups that are numbers, such as lengths, with those of the training examples shaded."""
    groups = [part["group"] for part in rows[0]["groups"]]
    for row, color in zip(rows, model_colors(rows).values(), strict=True):
        for key, style in styles.items():
            axes.plot(groups, [part[key] for part in row["groups"]], color=color, **style)
    trained = [part["group"] for part in rows[0]["groups"] if part["trained"]]
    axes.axvspan(min(trained) - 0.5, max(trained) + 0.5, color="0.93", zorder=0)
    axes.annotate("trained on", (np.mean(trained), 1.01), xycoords=("data", "axes fraction"), ha="center", color="0.3")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(label)


def bars(axes: Axes, labels: Sequence[str], series: dict[str, Sequence[float]], colors: dict[str, str]):
    """Draw a horizontal bar with its value for each label, from above, and each of the series by its color."""
    height = 0.8 / len(series)
    for n, (name, values) in enumerate(series.items()):
        positions = [line - 0.4 + (n + 0.5) * height for line in range(len(values))]
        drawn = axes.barh(positions, values, 0.92 * height, color=colors[name], label=name)
        axes.bar_label(drawn, [f"{value:.1%}" for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set(xlim=(0, 1.13), xticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(visible=False, axis="y")

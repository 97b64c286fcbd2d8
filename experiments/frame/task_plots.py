"""Curves and bars of tasks: a color for each model, a line style for each score."""

import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from experiments.frame import plots


def model_colors(rows: Sequence[dict]) -> dict[str, str]:
    """Return a color for the model of each row."""
    return plots.colors([row["model"] for row in rows])


def curves(axes: Axes, folder: pathlib.Path, rows: Sequence[dict], styles: dict[str, dict]):
    """Draw the validations of every run during training, a line for each score in `styles`."""
    for row, color in zip(rows, model_colors(rows).values(), strict=True):
        for key, style in styles.items():
            axes.plot(*plots.curve(folder / row["run"], key), color=color, **style)
    plots.token_axis(axes)


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

"""Picture of `experiments.entropy_floor`: a column for each text, losses above, excess over the entropy floor below."""

import pathlib
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.frame import plots

GRAY = {"color": "0.3", "linewidth": 1.2}
SMALL = {"textcoords": "offset points", "fontsize": 9}


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write entropy_floor.png from the baselines and the runs."""
    names = list(dict.fromkeys(row["corpus"] for row in rows))
    colors = plots.colors([row["model"] for row in rows if row["run"]])
    figure, axes = plots.subplots(2, len(names), figsize=(2 + 5 * len(names), 7), squeeze=False, sharex="col")
    for (losses, excess), name in zip(axes.T, names, strict=True):
        plot_corpus(losses, excess, folder, [row for row in rows if row["corpus"] == name], colors)
        losses.set_title(name)
    note = plots.sample_note(next(folder / row["run"] for row in rows if row["run"]))
    axes[0, 0].set_ylabel(f"val_loss_streaming{note} (nats per token)")
    axes[1, 0].set_ylabel("excess loss")
    plots.legend(axes[0, 0], colors, loc="best", fontsize=9)
    plots.save(figure, folder / "entropy_floor.png")


def plot_corpus(losses: Axes, excess: Axes, folder: pathlib.Path, rows: Sequence[dict], colors: dict[str, str]):
    """Plot the curves on one text, its floor and its n-grams; the excess is relative to the floor."""
    (ngrams, *trained), floor, rate = rows, rows[0]["source_loss"], rows[0]["entropy_rate"]
    for row in trained:
        style = {"color": colors[row["model"]], "marker": "o", "markersize": 3}
        losses.plot(*plots.curve(folder / row["run"], "val_loss_streaming"), **style)
        tokens, excess_losses = plots.curve(folder / row["run"], "excess_loss")
        shares = [value / floor for value in excess_losses]
        excess.plot(tokens, shares, **style)
        end = (tokens[-1], shares[-1])
        excess.annotate(f"{shares[-1]:.2%}", end, (6, 0), va="center", color=style["color"], **SMALL)
        excess.set_xlim(0, tokens[-1] * 1.13)  # shared by both axes
    for axes, level in ((losses, ngrams["val_loss_streaming"]), (excess, ngrams["excess_loss"] / floor)):
        axes.axhline(level, linestyle=":", **GRAY)
        label_level(axes, level, ngrams["model"])
    losses.axhline(floor, **GRAY)
    losses.axhline(rate, linestyle="--", **GRAY)
    label = f"entropy floor of this text {floor:.4f}; entropy rate (dashed) {rate:.4f}"
    label_level(losses, min(floor, rate, ngrams["val_loss_streaming"]), label, va="top")
    losses.margins(y=0.1)
    if min(row["excess_loss"] for row in rows) > 0:
        excess.set_yscale("log")
        excess.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        excess.yaxis.set_minor_formatter(NullFormatter())
    else:
        excess.axhline(0, **GRAY)
    excess.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    plots.token_axis(excess)


def label_level(axes: Axes, level: float, label: str, va: str = "bottom"):
    """Label a horizontal line at its left end, above it, or below it with va="top"."""
    axes.annotate(
        label,
        (0.01, level),
        (0, 2 if va == "bottom" else -2),
        xycoords=("axes fraction", "data"),
        va=va,
        color="0.3",
        **SMALL,
    )

"""Report of `experiments.scaling`, with scaling.png."""

import itertools
import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.frame import plots
from experiments.frame.report import Report
from experiments.frame.tables import Table, thousands
from experiments.scaling.findings import Group, best_trained, group_runs, rounded, verdict

NOTES = (
    "Losses are in nats per character of the whole validation split; val_loss: every disjoint window, from the zero "
    "state or the empty cache. N: all parameters except those of embedding and head. train FLOP: floating-point "
    "operations of the training, those of the head included. fit: value of the fitted curve; residual: val_loss minus "
    "fit. M: geometric mean of the sizes. ±: jackknife standard errors over the few points, one training each; they "
    "are rough. With equal tokens the curve is a power law; its asymptote L_inf is the loss of a very large model "
    "after these tokens, not the entropy of the text; where the sizes do not determine it, the pure power law is used. "
    "Twice the size: twice the middle one. With equal compute the curve is a parabola in ln N: small models are "
    "limited by their size, large ones by their few tokens."
)
IMAGE = "![Loss over size with equal tokens and with equal compute; below, the residuals](scaling.png)"


def scaling_report(corpus: str, folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Fit the curves, plot them and return the report."""
    groups, loss_name = group_runs(rows), f"val_loss@{rows[0]['val_sequence_length']}"
    plot(folder, groups)
    best = " and ".join(map(best_trained, groups["compute"]))
    details = [fits_table(groups), f"Best size trained with equal compute: {best}.", IMAGE]
    columns = ("model", "budget", "non-embedding parameters", loss_name, "residual")
    title, table = f"{corpus}: how the loss falls with size", runs_table(groups, loss_name)
    return Report(title, verdict(groups), table, columns, rows, NOTES, details)


def runs_table(groups: dict[str, list[Group]], loss_name: str) -> Table:
    """Return a line for each run."""
    points = [row for group in itertools.chain(*groups.values()) for row in group.rows]
    columns = {
        "model": lambda row: row["model"],
        "budget": lambda row: row["budget"],
        "non-embedding parameters": lambda row: f"{row['non_embedding_parameters']:,}",
        "parameters": lambda row: f"{row['parameters']:,}",
        "learning rate": lambda row: f"{row['learning_rate']:g}",
        "train tokens": lambda row: f"{row['train_tokens']:,}",
        "train FLOP": lambda row: f"{row['train_flops']:.2g}",
        "train seconds": lambda row: f"{row['train_seconds']:.0f}",
        loss_name: lambda row: f"{row['val_loss']:.3f}",
        "fit": lambda row: f"{row['val_loss'] - row['residual']:.3f}",
        "residual": lambda row: f"{row['residual']:+.3f}",
    }
    return Table.of(points, columns)


def fits_table(groups: dict[str, list[Group]]) -> Table:
    """Return a line for each fitted curve."""
    lines = [
        [group.family, group.budget, name, *estimates, f"{np.abs(fit.residuals).max():.3f}"]
        for group in itertools.chain(*groups.values())
        for name, fit, *estimates in group.estimates
    ]
    return Table(["model", "budget", "curve", "L_inf", "b", "best N", "largest residual"], lines)


def plot(folder: pathlib.Path, groups: dict[str, list[Group]]):
    """Write scaling.png: equal tokens on the left, equal compute on the right; losses above, residuals below."""
    figure, axes = plots.subplots(2, 2, figsize=(11, 6.6), height_ratios=(3, 1), sharex=True, sharey="row")
    for (budget, members), (losses, residuals) in zip(groups.items(), axes.T, strict=True):
        colors = plots.colors([group.family for group in members])
        for group in members:
            plot_group(losses, residuals, group, colors[group.family])
        losses.set_xscale("log")
        losses.xaxis.set_minor_locator(NullLocator())
        losses.set_xticks([rounded(size) for size in members[0].sizes])
        residuals.xaxis.set_major_formatter(FuncFormatter(thousands))
        residuals.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        residuals.set_xlabel("parameters without embedding and head")
        tokens, flops = (np.mean([row[key] for row in members[0].rows]) for key in ("train_tokens", "train_flops"))
        amount = f"{tokens:,.0f} tokens" if budget == "tokens" else f"{flops:.2g} FLOPs"
        losses.set_title(f"equal {budget}: {amount} each", fontsize=11)
        losses.legend(loc="upper center")
    axes[0, 0].set_ylabel("val_loss, nats per character")
    axes[1, 0].set_ylabel("residual")
    plots.save(figure, folder / "scaling.png")


def plot_group(losses: Axes, residuals: Axes, group: Group, color: str):
    """Plot the points of a family, its curve and the residuals."""
    x = np.geomspace(group.sizes[0] / 1.15, group.sizes[-1] * 1.15, 100)
    losses.plot(group.sizes, group.losses, "o", color=color)
    losses.plot(x, group.fit.curve(x), color=color, linewidth=1.5, label=f"{group.family}: {formula(group)}")
    residuals.plot(group.sizes, group.fit.residuals, "o-", color=color, linewidth=1)
    if group.has_best_size:
        best = group.fit.curve.best_size
        losses.plot(best, group.fit.curve(best), "v", color=color, markersize=9, fillstyle="none")


def formula(group: Group) -> str:
    """Format the curve for the legend."""
    curve = group.fit.curve
    if group.budget == "compute":
        return f"minimum at {thousands(rounded(curve.best_size))}" if group.has_best_size else "minimum not identified"
    asymptote = f"{curve.asymptote:.2f} + " if group.has_asymptote else ""
    size = thousands(rounded(curve.reference_size))
    return f"{asymptote}{curve.scale:.2f} (N / {size})$^{{-{curve.exponent:.3f}}}$"

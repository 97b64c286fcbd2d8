"""Write the report of `experiments.scaling`: scaling.json, scaling.md and scaling.png."""

import functools
import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.frame import plots, report
from experiments.scaling.fit import fit_parabola, fit_power_law, is_identified, jackknife_error, leave_one_out
from keras_seq.atomic_files import write_json, write_text

COLORS = {"lstm": "C0", "transformer": "C1"}
TITLES = {"lstm": "LSTM", "transformer": "Transformer"}
fit_pure_power_law = functools.partial(fit_power_law, with_asymptote=False)
COLUMN_NOTES = (
    "Losses are in nats per character of the whole validation split; val_loss: every disjoint window, from the zero "
    "state or the empty cache. N: all parameters except those of embedding and head. train FLOP: floating-point "
    "operations of the training, those of the head included. fit: value of the fitted curve; residual: val_loss minus "
    "fit. M: geometric mean of the sizes. ±: jackknife standard errors over the few points, one training each; they "
    "are rough. With equal tokens the curve is a power law; its asymptote L_inf is the loss of a very large model "
    "after these tokens, not the entropy of the text. With equal compute it is a parabola in ln N: small models are "
    "limited by their size, large ones by their few tokens."
)


class Curves:
    """Curves fitted to the runs of one family with one budget.

    Args:
        rows: One dict per size, as in result.json.
    """

    def __init__(self, rows):
        self.rows = sorted(rows, key=lambda row: row["non_embedding_parameters"])
        self.sizes = np.array([row["non_embedding_parameters"] for row in self.rows], "float64")
        self.losses = np.array([row["val_loss_per_character"] for row in self.rows])
        self.family, self.budget = rows[0]["model"], rows[0]["budget"]
        self.law = fit_power_law(self.sizes, self.losses)
        self.laws = leave_one_out(fit_power_law, self.sizes, self.losses)
        self.pure_law = fit_pure_power_law(self.sizes, self.losses)
        self.pure_laws = leave_one_out(fit_pure_power_law, self.sizes, self.losses)
        self.has_asymptote = is_identified(self.law, self.laws, self.losses)
        self.parabola = fit_parabola(self.sizes, self.losses)
        self.parabolas = leave_one_out(fit_parabola, self.sizes, self.losses)

    @property
    def curve(self):
        """Return the curve to plot: the parabola for equal compute, or the power law that is identified."""
        if self.budget == "compute":
            return self.parabola
        return self.law if self.has_asymptote else self.pure_law

    @property
    def residuals(self):
        """Return loss minus curve, `[sizes]`."""
        return self.losses - self.curve(self.sizes)

    @property
    def has_best_size(self) -> bool:
        """Return whether all parabolas, with and without each point, have their minimum within the sizes."""
        parabolas = (self.parabola, *self.parabolas)
        low, high = self.sizes[0], self.sizes[-1]
        return all(fit.best_size is not None and low < fit.best_size < high for fit in parabolas)


def fit_curves(rows) -> list[Curves]:
    """Fit the curves of every budget and family, tokens first."""
    keys = dict.fromkeys((row["budget"], row["model"]) for row in rows)
    keys = [key for budget in ("tokens", "compute") for key in keys if key[0] == budget]
    return [Curves([row for row in rows if (row["budget"], row["model"]) == key]) for key in keys]


def table(rows) -> str:
    """Format one line for each run."""
    lines = [
        [
            "model",
            "budget",
            "non-embedding parameters",
            "parameters",
            "learning rate",
            "train tokens",
            "train FLOP",
            "train seconds",
        ]
    ]
    lines[0] += [f"val_loss@{rows[0]['val_sequence_length']}", "fit", "residual"]
    for curves in fit_curves(rows):
        residuals = curves.residuals
        for n, row in enumerate(curves.rows):
            loss = row["val_loss_per_character"]
            fitted = [f"{loss - residuals[n]:.3f}", f"{residuals[n]:+.3f}"]
            sizes = [f"{row[name]:,}" for name in ("non_embedding_parameters", "parameters")]
            costs = [f"{row['train_tokens']:,}", f"{row['train_flops']:.2g}", f"{row['train_seconds']:.0f}"]
            rate = f"{row['learning_rate']:g}"
            lines.append([row["model"], row["budget"], *sizes, rate, *costs, f"{loss:.3f}", *fitted])
    return report.markdown_table(lines)


def fits_table(rows) -> str:
    """Format one line for each fitted curve."""
    lines = [["model", "budget", "curve", "L_inf", "b", "best N", "largest residual"]]
    for curves in fit_curves(rows):
        key = [curves.family, curves.budget]
        if curves.budget == "tokens":
            asymptote, exponent = "not identified", "not identified"
            if curves.has_asymptote:
                asymptote = asymptote_with_error(curves)
                exponent = with_error(curves.law.exponent, [law.exponent for law in curves.laws])
            lines.append([*key, "power law", asymptote, exponent, "-", largest_residual(curves, curves.law)])
            exponent = with_error(curves.pure_law.exponent, [law.exponent for law in curves.pure_laws])
            lines.append([*key, "pure power law", "0", exponent, "-", largest_residual(curves, curves.pure_law)])
        else:
            lines.append([*key, "parabola", "-", "-", best_size(curves), largest_residual(curves, curves.parabola)])
    return report.markdown_table(lines)


def with_error(value, values) -> str:
    """Format an estimate with its jackknife error.

    Args:
        value: Estimate from all points.
        values: Estimates without each of the points.
    """
    return f"{value:.3f} ± {jackknife_error(values):.3f}"


def asymptote_with_error(curves) -> str:
    """Format L_inf with its jackknife error."""
    return with_error(curves.law.asymptote, [law.asymptote for law in curves.laws])


def best_size(curves) -> str:
    """Format the size of the lowest loss of the parabola, with its error as a factor."""
    if not curves.has_best_size:
        return "not identified"
    factor = np.exp(jackknife_error([np.log(fit.best_size) for fit in curves.parabolas]))
    return f"{round_to(curves.parabola.best_size):,.0f}, within a factor of {factor:.2f}"


def largest_residual(curves, curve) -> str:
    """Format the largest absolute residual of a curve.

    Args:
        curves: `Curves` with the points.
        curve: One of its curves.
    """
    return f"{np.abs(curves.losses - curve(curves.sizes)).max():.3f}"


def round_to(value, digits=2) -> float:
    """Round a number to significant digits.

    Args:
        value: The number.
        digits: Number of significant digits.
    """
    return float(f"{value:.{digits}g}")


def conclusion(rows) -> str:
    """Summarize the results in one sentence or two per curve."""
    sentences = []
    for curves in fit_curves(rows):
        prefix, best = f"- {TITLES[curves.family]}, equal {curves.budget}: ", int(curves.losses.argmin())
        if curves.budget == "tokens":
            ratio = curves.curve(2 * curves.sizes[2]) / curves.curve(curves.sizes[2])
            text = f"twice the size lowers the loss by {100 * (1 - ratio):.1f} % around the middle size. "
            if curves.has_asymptote:
                text += f"The points determine the asymptote: L_inf {asymptote_with_error(curves)}."
            else:
                text += (
                    "These sizes do not determine the asymptote: L_inf is not identified, and the pure power law is "
                    f"used, with residuals of up to {largest_residual(curves, curves.pure_law)}."
                )
        else:
            size, tokens = curves.rows[best]["non_embedding_parameters"], curves.rows[best]["train_tokens"]
            text = f"the best size trained is N = {size:,} with {tokens:,} tokens, {tokens / size:.0f} per parameter. "
            text += f"Best size by the parabola: {best_size(curves)}."
        sentences.append(prefix + text)
    return "\n".join(sentences)


def write_report(folder: pathlib.Path, corpus, rows):
    """Write scaling.json, scaling.md and scaling.png.

    Args:
        folder: Folder of the files.
        corpus: Name of the corpus.
        rows: One dict per run.
    """
    write_json(folder / "scaling.json", rows)
    image = "![Loss over size with equal tokens and with equal compute; below, the residuals](scaling.png)"
    title = f"# {corpus}: how the loss falls with size"
    parts = [title, table(rows), fits_table(rows), COLUMN_NOTES, conclusion(rows), image]
    write_text(folder / "scaling.md", "\n\n".join(parts) + "\n")
    plot(folder, rows)


def plot(folder, rows):
    """Plot scaling.png: equal tokens on the left, equal compute on the right; losses above, residuals below.

    Args:
        folder: Folder of the plot.
        rows: One dict per run.
    """
    figure, axes = plt.subplots(
        2, 2, figsize=(11, 6.6), height_ratios=(3, 1), sharex=True, sharey="row", layout="constrained"
    )
    columns = {"tokens": axes[:, 0], "compute": axes[:, 1]}
    for curves in fit_curves(rows):
        plot_curves(*columns[curves.budget], curves)
    tokens = max(row["train_tokens"] for row in rows if row["budget"] == "tokens")
    compute = np.mean([row["train_flops"] for row in rows if row["budget"] == "compute"])
    for budget, (losses, residuals) in columns.items():
        for panel in (losses, residuals):
            panel.set_xscale("log")
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_major_formatter(FuncFormatter(report.thousands))
            plots.style_axes(panel)
        ticks = sorted({round_to(row["non_embedding_parameters"]) for row in rows if row["model"] == rows[0]["model"]})
        losses.set_xticks(ticks)
        residuals.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        residuals.set_xlabel("parameters without embedding and head")
        amount = f"{tokens:,} tokens" if budget == "tokens" else f"{compute:.2g} FLOPs"
        losses.set_title(f"equal {budget}: {amount} each", fontsize=11)
    axes[0, 0].set_ylabel("val_loss, nats per character")
    axes[1, 0].set_ylabel("residual")
    for panel in axes[0]:
        panel.legend(frameon=False, loc="upper center", fontsize=9)
    plots.save(figure, folder / "scaling.png")


def plot_curves(losses, residuals, curves):
    """Plot the points of a family, its curve and the residuals.

    Args:
        losses: Axes of the losses.
        residuals: Axes of the residuals.
        curves: The `Curves` of the family.
    """
    color, label = COLORS[curves.family], f"{TITLES[curves.family]}: {formula(curves)}"
    x = np.geomspace(curves.sizes[0] / 1.15, curves.sizes[-1] * 1.15, 100)
    losses.plot(curves.sizes, curves.losses, "o", color=color)
    losses.plot(x, curves.curve(x), color=color, linewidth=1.5, label=label)
    residuals.plot(curves.sizes, curves.residuals, "o-", color=color, linewidth=1, markersize=4)
    if curves.budget == "compute" and curves.has_best_size:
        best = curves.parabola.best_size
        losses.plot(best, curves.curve(best), "v", color=color, markersize=9, fillstyle="none")


def formula(curves) -> str:
    """Format the curve for the legend."""
    if curves.budget == "compute":
        if not curves.has_best_size:
            return "minimum not identified"
        return f"minimum at {report.thousands(round_to(curves.parabola.best_size))}"
    curve = curves.curve
    asymptote = f"{curve.asymptote:.2f} + " if curves.has_asymptote else ""
    size = report.thousands(round_to(curve.reference_size))
    return f"{asymptote}{curve.scale:.2f} (N / {size})$^{{-{curve.exponent:.3f}}}$"


def final_message(folder: pathlib.Path, rows) -> str:
    """Return the text that the terminal shows at the end.

    Args:
        folder: Folder of the report.
        rows: One dict per run.
    """
    files = f"Plot:   {folder / 'scaling.png'}\nReport: {folder / 'scaling.md'}"
    parts = [table(rows), fits_table(rows), COLUMN_NOTES, conclusion(rows), files]
    return "\n" + "\n\n".join(parts) + f"\n{report.tensorboard_hint(folder)}"

"""What `experiments.scaling` leaves beside its runs: scaling.json, scaling.md and scaling.png."""

import functools
import pathlib

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments import pictures, report
from experiments.scaling_fit import identified, jackknife, left_out, parabola, power_law
from keras_seq.atomic_files import write_json, write_text

COLOURS = {"lstm": "C0", "transformer": "C1"}
TITLES = {"lstm": "LSTM", "transformer": "Transformer"}
PURE = functools.partial(power_law, with_floor=False)
NOTES = (
    "Nats per character of the whole validation split, every window on its own from the zero state or the empty cache. "
    "N: all weights but those of embedding and output matrix. operations: of the training, the output matrix "
    "included. fit: of the curve below; its residual is the loss less it. M: the geometric mean of the sizes. ±: "
    "jackknife standard errors over the few points, one training each, which are rough. By the tokens a "
    "power law, L_inf its end: the loss of a very large model after these tokens, no entropy of the text. By the "
    "compute a parabola in ln N, since small models end by their size there and large ones by their few tokens."
)


class Curves:
    """What is fitted to the runs of one family with one budget.

    Args:
        rows: one a size, as result.json has them.
    """

    def __init__(self, rows):
        self.rows = sorted(rows, key=lambda row: row["non_embedding_parameters"])
        self.sizes = np.array([row["non_embedding_parameters"] for row in self.rows], "float64")
        self.losses = np.array([row["val_loss_per_character"] for row in self.rows])
        self.family, self.budget = rows[0]["model"], rows[0]["budget"]
        self.law = power_law(self.sizes, self.losses)
        self.laws = left_out(power_law, self.sizes, self.losses)
        self.pure = PURE(self.sizes, self.losses)
        self.pures = left_out(PURE, self.sizes, self.losses)
        self.has_floor = identified(self.law, self.laws, self.losses)
        self.parabola = parabola(self.sizes, self.losses)
        self.parabolas = left_out(parabola, self.sizes, self.losses)

    @property
    def curve(self):
        """The one that is drawn."""
        if self.budget == "compute":
            return self.parabola
        return self.law if self.has_floor else self.pure

    @property
    def residuals(self):
        """Loss less curve, `[sizes]`."""
        return self.losses - self.curve(self.sizes)

    @property
    def has_lowest(self) -> bool:
        """Whether the parabola, with all points or without one of them, has its lowest point among the sizes."""
        found = (self.parabola, *self.parabolas)
        return all(fit.best is not None and self.sizes[0] < fit.best < self.sizes[-1] for fit in found)


def groups(rows) -> list[Curves]:
    """The curves of every family and budget, in the order of the rows."""
    keys = dict.fromkeys((row["budget"], row["model"]) for row in rows)
    keys = [key for budget in ("tokens", "compute") for key in keys if key[0] == budget]
    return [Curves([row for row in rows if (row["budget"], row["model"]) == key]) for key in keys]


def table(rows) -> str:
    """A line for each run, as a Markdown table that reads as plain text too."""
    lines = [["model", "budget", "N", "parameters", "rate", "tokens", "operations", "seconds"]]
    lines[0] += [f"cold@{rows[0]['val_sequence_length']}", "fit", "residual"]
    for curves in groups(rows):
        residuals = curves.residuals
        for n, row in enumerate(curves.rows):
            loss = row["val_loss_per_character"]
            fitted = [f"{loss - residuals[n]:.3f}", f"{residuals[n]:+.3f}"]
            sizes = [f"{row[name]:,}" for name in ("non_embedding_parameters", "parameters")]
            cost = [f"{row['train_tokens']:,}", f"{row['train_flops']:.2g}", f"{row['train_seconds']:.0f}"]
            rate = f"{row['learning_rate']:g}"
            lines.append([row["model"], row["budget"], *sizes, rate, *cost, f"{loss:.3f}", *fitted])
    return report.aligned(lines)


def fits(rows) -> str:
    """A line for each curve."""
    lines = [["model", "budget", "curve", "L_inf", "b", "N of the lowest", "largest residual"]]
    for curves in groups(rows):
        who = [curves.family, curves.budget]
        if curves.budget == "tokens":
            floor, exponent = "not identified", "not identified"
            if curves.has_floor:
                floor = end(curves)
                exponent = with_error(curves.law.exponent, [law.exponent for law in curves.laws])
            lines.append([*who, "power law", floor, exponent, "-", largest(curves, curves.law)])
            exponent = with_error(curves.pure.exponent, [law.exponent for law in curves.pures])
            lines.append([*who, "pure power law", "0", exponent, "-", largest(curves, curves.pure)])
        else:
            lines.append([*who, "parabola", "-", "-", best_size(curves), largest(curves, curves.parabola)])
    return report.aligned(lines)


def with_error(value, without) -> str:
    """An estimate and its jackknife error as words."""
    return f"{value:.3f} ± {jackknife(without):.3f}"


def end(curves) -> str:
    """L_inf and its error as words."""
    return with_error(curves.law.floor, [law.floor for law in curves.laws])


def best_size(curves) -> str:
    """Where the parabola is lowest, and its error, a factor, for it is one of the logarithm."""
    if not curves.has_lowest:
        return "not identified"
    factor = np.exp(jackknife([np.log(fit.best) for fit in curves.parabolas]))
    return f"{round_to(curves.parabola.best):,.0f}, within a factor of {factor:.2f}"


def largest(curves, curve) -> str:
    """The largest residual of a curve."""
    return f"{np.abs(curves.losses - curve(curves.sizes)).max():.3f}"


def round_to(value, digits=2) -> float:
    """A number with so many digits that count."""
    return float(f"{value:.{digits}g}")


def statement(rows) -> str:
    """What was found, in sentences made from the figures."""
    sentences = []
    for curves in groups(rows):
        who, best = f"- {TITLES[curves.family]}, the same {curves.budget}: ", int(curves.losses.argmin())
        if curves.budget == "tokens":
            doubling = curves.curve(2 * curves.sizes[2]) / curves.curve(curves.sizes[2])
            told = f"twice the size takes {100 * (1 - doubling):.1f} % off the loss around the middle size. "
            if curves.has_floor:
                told += f"The points say where it ends: L_inf {end(curves)}."
            else:
                told += (
                    "These sizes do not say where it ends: L_inf is not identified, and the pure power law stands for "
                    f"them, with residuals of up to {largest(curves, curves.pure)}."
                )
        else:
            size, tokens = curves.rows[best]["non_embedding_parameters"], curves.rows[best]["train_tokens"]
            told = f"the best size tried is N = {size:,} with {tokens:,} tokens, {tokens / size:.0f} for each weight. "
            told += f"Size where the parabola is lowest: {best_size(curves)}."
        sentences.append(who + told)
    return "\n".join(sentences)


def write(folder: pathlib.Path, corpus, rows):
    """Writes the three files into `folder`."""
    write_json(folder / "scaling.json", rows)
    picture = "![Loss over size, by the same tokens and by the same compute; below, the residuals](scaling.png)"
    parts = [f"# {corpus}: how loss falls with size", table(rows), fits(rows), NOTES, statement(rows), picture]
    write_text(folder / "scaling.md", "\n\n".join(parts) + "\n")
    draw(folder, rows)


def draw(folder, rows):
    """scaling.png: on the left the same tokens, on the right the same compute; losses above, residuals below."""
    figure, axes = plt.subplots(
        2, 2, figsize=(11, 6.6), height_ratios=(3, 1), sharex=True, sharey="row", layout="constrained"
    )
    columns = {"tokens": axes[:, 0], "compute": axes[:, 1]}
    for curves in groups(rows):
        draw_curves(*columns[curves.budget], curves)
    tokens = max(row["train_tokens"] for row in rows if row["budget"] == "tokens")
    compute = np.mean([row["train_flops"] for row in rows if row["budget"] == "compute"])
    for budget, (losses, residuals) in columns.items():
        for part in (losses, residuals):
            part.set_xscale("log")
            part.xaxis.set_minor_locator(NullLocator())
            part.xaxis.set_major_formatter(FuncFormatter(report.thousands))
            pictures.plain(part)
        ticks = sorted({round_to(row["non_embedding_parameters"]) for row in rows if row["model"] == rows[0]["model"]})
        losses.set_xticks(ticks)
        residuals.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        residuals.set_xlabel("weights without embedding and output matrix")
        amount = f"{tokens:,} tokens" if budget == "tokens" else f"{compute:.2g} operations"
        losses.set_title(f"the same {budget}: {amount} each", fontsize=11)
    axes[0, 0].set_ylabel("nats per character, cold")
    axes[1, 0].set_ylabel("loss less curve")
    for part in axes[0]:
        part.legend(frameon=False, loc="upper center", fontsize=9)
    pictures.save(figure, folder / "scaling.png")


def draw_curves(losses, residuals, curves):
    """The points of a family, its curve and what is left."""
    colour, told = COLOURS[curves.family], f"{TITLES[curves.family]}: {formula(curves)}"
    x = np.geomspace(curves.sizes[0] / 1.15, curves.sizes[-1] * 1.15, 100)
    losses.plot(curves.sizes, curves.losses, "o", color=colour)
    losses.plot(x, curves.curve(x), color=colour, linewidth=1.5, label=told)
    residuals.plot(curves.sizes, curves.residuals, "o-", color=colour, linewidth=1, markersize=4)
    if curves.budget == "compute" and curves.has_lowest:
        losses.plot(
            curves.parabola.best, curves.curve(curves.parabola.best), "v", color=colour, markersize=9, fillstyle="none"
        )


def formula(curves) -> str:
    """The curve in words."""
    if curves.budget == "compute":
        return (
            f"lowest at {report.thousands(round_to(curves.parabola.best))}" if curves.has_lowest else "no lowest point"
        )
    curve = curves.curve
    floor = f"{curve.floor:.2f} + " if curves.has_floor else ""
    return f"{floor}{curve.scale:.2f} (N / {report.thousands(round_to(curve.middle))})$^{{-{curve.exponent:.3f}}}$"


def closing(folder: pathlib.Path, rows) -> str:
    """What the terminal shows at the end."""
    files = f"Picture: {folder / 'scaling.png'}\nReport:  {folder / 'scaling.md'}"
    return "\n" + "\n\n".join([table(rows), fits(rows), NOTES, statement(rows), files]) + f"\n{report.to_look(folder)}"

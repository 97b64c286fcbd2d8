"""Report a sweep of learning rates: for each model the best rate, how certain it is, and what another one costs.

    loss(x) = a + b x + c x^2,   x = log2(rate / center);   optimum x* = -b / 2c,   loss(x* + 1) - loss(x*) = c

The parabola is fitted to the rates next to the lowest loss, NUM_FITTED at most and MAX_LOSS above it at most, as losses
far from it lie on none. All models have one variance: their residuals together, over the degrees of freedom together.
The interval of the optimum has every x at which a slope of zero is not refuted (Fieller, 1954); where the curvature is
within chance, it has no ends.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import FuncFormatter

from keras_seq.reports import plots
from keras_seq.reports.tables import Table

NUM_FITTED, NUM_COEFFICIENTS = 5, 3
CONFIDENCE = 0.95
MAX_LOSS = 0.1  # of the fit and the picture: nats per character above the lowest
PANELS = 4  # of a row of the picture


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """One run of the sweep: its loss is of the held-out text in nats per character, None where training diverged."""

    model: str
    learning_rate: float
    loss: float | None


@dataclasses.dataclass(frozen=True)
class RateCurve:
    """The losses of a model over learning rates, and the parabola through those next to the lowest."""

    model: str
    rates: tuple[float, ...]  # those whose runs did not diverge, in ascending order
    losses: tuple[float, ...]  # held-out loss at each, in nats per character
    tried: tuple[float, ...]  # all learning rates, in ascending order
    variance: float | None = None  # of a loss around the parabolas of all models, if one has more rates than these
    degrees_of_freedom: int = 0  # of this variance

    @property
    def lowest(self) -> int:
        """Index of the lowest loss."""
        return int(np.argmin(self.losses))

    @functools.cached_property
    def fitted(self) -> slice:
        """The rates that the parabola is fitted to: those next to the lowest loss."""
        near = [loss <= self.losses[self.lowest] + MAX_LOSS for loss in self.losses]
        first, last = self.lowest, self.lowest
        while first > 0 and near[first - 1]:
            first -= 1
        while last + 1 < len(near) and near[last + 1]:
            last += 1
        first = max(first, min(self.lowest - NUM_FITTED // 2, last - NUM_FITTED + 1))
        return slice(first, min(last + 1, first + NUM_FITTED))

    @functools.cached_property
    def coefficients(self) -> np.ndarray | None:
        """The parabola's `(c, b, a)`; None with fewer rates than coefficients."""
        x = self._x(self.rates[self.fitted])
        return np.polyfit(x, self.losses[self.fitted], 2) if len(x) >= NUM_COEFFICIENTS else None

    @property
    def residuals(self) -> np.ndarray:
        """The fitted losses less those of the parabola; empty without one."""
        if self.coefficients is None:
            return np.empty(0)
        return np.array(self.losses[self.fitted]) - self.loss_at(np.array(self.rates[self.fitted]))

    def loss_at(self, rate):
        """Compute the loss that the parabola has at a rate or an array of them."""
        return np.polyval(self.coefficients, self._x(rate))

    @functools.cached_property
    def optimum(self) -> float:
        """The rate with the lowest loss: of the parabola where it is inside the tried rates, else of those tried."""
        if self.coefficients is not None and (curvature := self.coefficients[0]) > 0:
            rate = self._center * 2 ** (-self.coefficients[1] / (2 * curvature))
            if self._is_fitted(rate):
                return float(f"{rate:.2g}")
        return self.rates[self.lowest]

    @property
    def edge(self) -> str | None:
        """The end of the tried rates where the lowest loss is, "smallest" or "largest"; None inside."""
        if self.rates[self.lowest] == self.tried[0]:
            return "smallest"
        return "largest" if self.rates[self.lowest] == self.tried[-1] else None

    @functools.cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the optimum; None where it has no ends."""
        if self.coefficients is None or self.variance is None or self.coefficients[0] <= 0:
            return None
        c, b, _ = self.coefficients
        limit = self._quantile**2 * self._covariance
        # (b + 2 c x)^2 <= t^2 var(b + 2 c x), a quadratic in x
        squared, linear, constant = 4 * (c * c - limit[0, 0]), 4 * (b * c - limit[0, 1]), b * b - limit[1, 1]
        if squared <= 0:
            return None
        half = math.sqrt(max(0.0, linear * linear - 4 * squared * constant)) / (2 * squared)
        low, high = (self._center * 2 ** (-linear / (2 * squared) + sign * half) for sign in (-1, 1))
        return min(float(low), self.optimum), max(float(high), self.optimum)  # which may be the edge of what was tried

    @property
    def doubling_cost(self) -> tuple[float, float | None]:
        """Cost of twice or half the optimum in nats per character, and half the width of its 95 % interval."""
        spread = None if self.variance is None else self._quantile * math.sqrt(self._covariance[0, 0])
        return float(self.coefficients[0]), spread

    def cost(self, rate: float) -> float:
        """Return what a rate costs beside the optimum, by the parabola, in nats per character; outside, by its run."""
        if self.coefficients is None or not (self._is_fitted(rate) or rate in self.rates):
            raise ValueError(f"rate={rate:g}; expected a tried rate of {self.model} or one inside its parabola.")
        loss = self.loss_at(rate) if self._is_fitted(rate) else self.losses[self.rates.index(rate)]
        return float(loss - self.loss_at(self.optimum))

    def _is_fitted(self, rate):
        return self.rates[self.fitted][0] <= rate <= self.rates[self.fitted][-1]

    @property
    def _center(self):
        return math.sqrt(self.rates[self.fitted][0] * self.rates[self.fitted][-1])

    def _x(self, rate):
        return np.log2(np.asarray(rate) / self._center)

    @property
    def _covariance(self):
        design = np.vander(self._x(self.rates[self.fitted]), NUM_COEFFICIENTS)
        return self.variance * np.linalg.inv(design.T @ design)

    @property
    def _quantile(self):
        from scipy import stats

        return stats.t.ppf((1 + CONFIDENCE) / 2, self.degrees_of_freedom)


def fit_rates(runs: Sequence[SweepRun]) -> dict[str, RateCurve]:
    """Return the curve of each model by name; raise a ValueError if one diverged at every rate."""
    curves = {}
    for model in dict.fromkeys(run.model for run in runs):
        own = sorted((run for run in runs if run.model == model), key=lambda run: run.learning_rate)
        finished = [(run.learning_rate, run.loss) for run in own if run.loss is not None]
        if not finished:
            raise ValueError(f"{model} diverged at every learning rate of --sweep-factors: expected smaller ones.")
        curves[model] = RateCurve(model, *zip(*finished, strict=True), tuple(run.learning_rate for run in own))
    residuals = [curve.residuals for curve in curves.values() if len(curve.residuals)]
    freedom = sum(len(each) - NUM_COEFFICIENTS for each in residuals)
    if freedom == 0:
        return curves
    variance = sum(float(each @ each) for each in residuals) / freedom
    added = {"variance": variance, "degrees_of_freedom": freedom}
    return {model: dataclasses.replace(curve, **added) for model, curve in curves.items()}


def rates_table(curves: dict[str, RateCurve], defaults: dict[str, float]) -> Table:
    """Return a line for each model: the optimum, its interval, and what twice or half of it and the default cost."""
    header = ["model", "best rate", "95 % interval", "twice or half costs", "default", "default costs", "rates tried"]
    rows = []
    for curve in curves.values():
        default, doubling_cost, default_cost = defaults[curve.model], "-", "-"
        if curve.coefficients is not None:
            cost, spread = curve.doubling_cost
            doubling_cost = f"{cost:.4f}" if spread is None else f"{cost:.4f} ± {spread:.4f}"
            default_cost = f"{curve.cost(default):+.4f}" if default in curve.rates else "-"
        tried = f"{len(curve.tried)}, {curve.tried[0]:g} to {curve.tried[-1]:g}"
        optimum = [f"{curve.optimum:g}", _in_words(curve)]
        rows.append([curve.model, *optimum, doubling_cost, f"{default:g}", default_cost, tried])
    return Table(header, rows)


def _in_words(curve):
    """Write the interval; of an end beyond the rates tried only this is known."""
    if curve.interval is None:
        return "-"
    (low, high), (first, *_, last) = curve.interval, curve.tried
    return f"{f'<{first:g}' if low < first else f'{low:.2g}'} to {f'>{last:g}' if high > last else f'{high:.2g}'}"


def runs_table(runs: Sequence[SweepRun]) -> Table:
    """Return the held-out loss of each model, a line, at each learning rate, a column."""
    rates = sorted({run.learning_rate for run in runs})
    cells = {(run.model, run.learning_rate): "diverged" if run.loss is None else f"{run.loss:.4f}" for run in runs}
    models = dict.fromkeys(run.model for run in runs)
    rows = [[model, *(cells.get((model, rate), "") for rate in rates)] for model in models]
    return Table(["model", *(f"{rate:g}" for rate in rates)], rows)


def parabola(curve: RateCurve, points: int = 41) -> tuple[list[float], list[float]]:
    """Return rates and losses along the fitted part of a curve; without a parabola, the finished runs."""
    if curve.coefficients is None:
        return [*curve.rates], [*curve.losses]
    rates = np.geomspace(*np.array(curve.rates[curve.fitted])[[0, -1]], points)
    return rates.tolist(), curve.loss_at(rates).tolist()


def plot_rates(curves: dict[str, RateCurve], path: pathlib.Path, colors: dict[str, str]):
    """Write a picture: for each model the loss above its lowest over the rate, and its optimum with the interval."""
    columns = min(PANELS, len(curves))
    rows = -(-len(curves) // columns)
    figure, axes = plots.subplots(
        rows, columns, figsize=(1 + 2.6 * columns, 0.8 + 2.1 * rows), squeeze=False, sharex=True, sharey=True
    )
    panels = axes.ravel()
    for panel, curve in zip(panels, curves.values(), strict=False):
        color, (rates, losses) = colors[curve.model], parabola(curve)
        lowest = min(*curve.losses, *losses)
        panel.plot(curve.rates, np.subtract(curve.losses, lowest), "o", color=color, markersize=4)
        panel.plot(rates, np.subtract(losses, lowest), color=color)
        if curve.interval is not None:
            panel.axvspan(
                *np.clip(curve.interval, curve.tried[0], curve.tried[-1]), color=color, alpha=0.15, linewidth=0
            )
        panel.axvline(curve.optimum, color=color, linewidth=0.9, linestyle=(0, (4, 3)))
        panel.set_title(f"{plots.shortened(curve.model)}: {curve.optimum:g}", fontsize=10)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
        panel.set_xticks(sorted({rate for curve in curves.values() for rate in curve.tried}))
        panel.tick_params(axis="x", labelrotation=45, labelsize=8)
        panel.minorticks_off()
    for panel in panels[len(curves) :]:
        panel.set_visible(False)
    for panel in panels[len(curves) - columns : len(curves)]:
        panel.tick_params(axis="x", labelbottom=True)
    panels[0].set_ylim(-0.05 * MAX_LOSS, MAX_LOSS)
    figure.supxlabel("learning rate", fontsize=10)
    figure.supylabel("loss above the lowest\n(nats per character)", fontsize=10)
    plots.save(figure, path)

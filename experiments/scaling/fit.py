"""Fit power laws and parabolas to a few points (N, loss), and estimate their errors.

    power law            L(N) = L_inf + a (N / M)^-b,   L_inf >= 0, M the geometric mean of the sizes
    pure power law       the same with L_inf = 0
    parabola             L(N) = c + k ln(N / N*)^2        for fixed compute (Hoffmann et al., 2022, arXiv:2203.15556,
                                                          approach 2)

For a given b the power law is linear in L_inf and a, so the least-squares fit searches b alone (variable projection;
Golub & Pereyra, 1973). Losses are in nats. Errors are jackknife estimates, which leave out each point once (Efron &
Tibshirani, 1993, chapter 11). With five points and three unknowns, the errors are rough themselves.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

EXPONENT_BOUNDS = (0.01, 3.0)  # of the search for b
LOSS_TOLERANCE = 1e-6  # nats below which L_inf counts as zero
MAX_LOG_SIZE_RATIO = 20  # largest |ln(N* / M)| at which the minimum of a parabola counts
GOLDEN_RATIO = (np.sqrt(5) - 1) / 2


@dataclasses.dataclass(frozen=True)
class PowerLaw:
    """Power law `asymptote + scale (N / reference_size)^-exponent`, in nats."""

    asymptote: float
    scale: float
    exponent: float
    reference_size: float

    def __call__(self, sizes):
        return self.asymptote + self.scale * (np.asarray(sizes) / self.reference_size) ** -self.exponent

    @property
    def is_at_bound(self) -> bool:
        """Return whether the search ended at a bound of the exponent or at an asymptote of zero."""
        low, high = EXPONENT_BOUNDS
        return self.asymptote < LOSS_TOLERANCE or not 1.01 * low < self.exponent < 0.99 * high


@dataclasses.dataclass(frozen=True)
class Parabola:
    """Parabola `level + slope u + curvature u^2` with u = ln(N / reference_size), in nats."""

    level: float
    slope: float
    curvature: float
    reference_size: float

    def __call__(self, sizes):
        u = np.log(np.asarray(sizes) / self.reference_size)
        return self.level + self.slope * u + self.curvature * u**2

    @property
    def best_size(self) -> float | None:
        """Return N*, the size of the lowest loss; None for a parabola that opens downwards or is almost a line."""
        if self.curvature <= 0 or abs(self.slope) > 2 * MAX_LOG_SIZE_RATIO * self.curvature:
            return None
        return float(self.reference_size * np.exp(-self.slope / (2 * self.curvature)))


def fit_power_law(sizes, losses, with_asymptote: bool = True) -> PowerLaw:
    """Fit a power law by least squares.

    Args:
        sizes: Sizes N, `[n]`.
        losses: Losses in nats, `[n]`.
        with_asymptote: Whether to fit L_inf; otherwise it is 0.
    """
    sizes, losses = np.asarray(sizes, "float64"), np.asarray(losses, "float64")
    reference_size = np.exp(np.log(sizes).mean())

    def solve(exponent):
        x = (sizes / reference_size) ** -exponent
        asymptote = 0.0
        if with_asymptote:
            variance = np.square(x - x.mean()).sum()
            asymptote = max(0.0, losses.mean() - x.mean() * ((x - x.mean()) * losses).sum() / variance)
        scale = (x * (losses - asymptote)).sum() / np.square(x).sum()
        law = PowerLaw(float(asymptote), float(scale), exponent, float(reference_size))
        return np.square(asymptote + scale * x - losses).sum(), law

    grid = np.geomspace(*EXPONENT_BOUNDS, 200)
    best = int(np.argmin([solve(exponent)[0] for exponent in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(40):
        left, right = high - GOLDEN_RATIO * (high - low), low + GOLDEN_RATIO * (high - low)
        low, high = (low, right) if solve(left)[0] < solve(right)[0] else (left, high)
    return solve(float((low + high) / 2))[1]


def fit_parabola(sizes, losses) -> Parabola:
    """Fit a parabola in ln N by least squares.

    Args:
        sizes: Sizes N, `[n]`.
        losses: Losses in nats, `[n]`.
    """
    u = np.log(np.asarray(sizes, "float64"))
    curvature, slope, level = np.polyfit(u - u.mean(), np.asarray(losses, "float64"), 2)
    return Parabola(float(level), float(slope), float(curvature), float(np.exp(u.mean())))


def leave_one_out(fit: Callable, sizes, losses) -> list:
    """Return the fits without each of the points.

    Args:
        fit: Function from sizes and losses to a fit.
        sizes: Sizes N, `[n]`.
        losses: Losses in nats, `[n]`.
    """
    return [fit(np.delete(sizes, n), np.delete(losses, n)) for n in range(len(sizes))]


def jackknife_error(values) -> float:
    """Compute the standard error of an estimate from its values without each of the points, `[n]`."""
    values = np.asarray(values, "float64")
    return float(np.sqrt((len(values) - 1) * np.square(values - values.mean()).mean()))


def is_identified(law: PowerLaw, laws: list[PowerLaw], losses) -> bool:
    """Return whether the points determine L_inf.

    They do if no fit ended at a bound of the search, and two standard errors of L_inf are less than its distance to the
    lowest loss.

    Args:
        law: Fit to all points.
        laws: Fits without each of the points.
        losses: Losses in nats, `[n]`.
    """
    if any(fit.is_at_bound for fit in (law, *laws)):
        return False
    return bool(2 * jackknife_error([fit.asymptote for fit in laws]) < min(losses) - law.asymptote)

"""Fit scaling laws, power laws and parabolas, to the losses of a few model sizes N, and estimate their errors.

    power law            L(N) = L_inf + a (N / M)^-b,   L_inf >= 0, M the geometric mean of the sizes
    pure power law       the same with L_inf = 0
    parabola             L(N) = c + k ln(N / N*)^2        for fixed compute (Hoffmann et al., 2022, arXiv:2203.15556,
                                                          approach 2)

For a given b the power law is linear in L_inf and a, so the least-squares fit searches b alone (variable projection;
Golub & Pereyra, 1973). Errors are jackknife estimates, which leave out each point once (Efron & Tibshirani, 1993,
chapter 11); with five points and three unknowns, they are rough themselves.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

EXPONENT_BOUNDS = (0.01, 3.0)  # of the search for b
LOSS_TOLERANCE = 1e-6  # nats below which L_inf counts as zero
MAX_LOG_SIZE_RATIO = 20  # largest |ln(N* / M)| at which the minimum of a parabola counts


class PowerLaw(NamedTuple):
    """Hold a power law `asymptote + scale (N / reference_size)^-exponent`, in nats."""

    asymptote: float
    scale: float
    exponent: float
    reference_size: float

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        """Return the losses at these sizes."""
        return self.asymptote + self.scale * (np.asarray(sizes) / self.reference_size) ** -self.exponent

    @property
    def is_at_bound(self) -> bool:
        """Return whether the search ended at a bound of the exponent or at an asymptote of zero."""
        low, high = EXPONENT_BOUNDS
        return self.asymptote < LOSS_TOLERANCE or not 1.01 * low < self.exponent < 0.99 * high


class Parabola(NamedTuple):
    """Hold a parabola `level + slope u + curvature u^2` with u = ln(N / reference_size), in nats."""

    level: float
    slope: float
    curvature: float
    reference_size: float

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        """Return the losses at these sizes."""
        u = np.log(np.asarray(sizes) / self.reference_size)
        return self.level + self.slope * u + self.curvature * u**2

    @property
    def best_size(self) -> float:
        """N*, the size of the lowest loss; NaN for a parabola that opens downwards or is almost a line."""
        if self.curvature <= 0 or abs(self.slope) > 2 * MAX_LOG_SIZE_RATIO * self.curvature:
            return math.nan
        return float(self.reference_size * np.exp(-self.slope / (2 * self.curvature)))


def fit_power_law(sizes: np.ndarray, losses: np.ndarray, with_asymptote: bool = True) -> PowerLaw:
    """Fit a power law by least squares."""
    sizes, losses = _checked(sizes, losses)
    reference_size = np.exp(np.log(sizes).mean())

    def solve(exponent):
        x = (sizes / reference_size) ** -exponent
        centered = x - x.mean()
        slope = centered @ losses / (centered @ centered)
        asymptote = max(0.0, losses.mean() - slope * x.mean()) if with_asymptote else 0.0
        scale = x @ (losses - asymptote) / (x @ x)
        law = PowerLaw(float(asymptote), float(scale), exponent, float(reference_size))
        return np.square(asymptote + scale * x - losses).sum(), law

    low, high = EXPONENT_BOUNDS
    for _ in range(5):
        grid = np.geomspace(low, high, 100)
        best = int(np.argmin([solve(exponent)[0] for exponent in grid]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    return solve(float((low + high) / 2))[1]


def fit_parabola(sizes: np.ndarray, losses: np.ndarray) -> Parabola:
    """Fit a parabola in ln N by least squares."""
    sizes, losses = _checked(sizes, losses)
    u = np.log(sizes)
    curvature, slope, level = np.polyfit(u - u.mean(), losses, 2)
    return Parabola(float(level), float(slope), float(curvature), float(np.exp(u.mean())))


def _checked(sizes, losses):
    sizes, losses = np.asarray(sizes, "float64"), np.asarray(losses, "float64")
    if not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise ValueError(f"sizes has {sizes.min()}; expected finite numbers above 0.")
    if not np.isfinite(losses).all():
        raise ValueError("losses has a number that is not finite: leave that point out.")
    return sizes, losses


class Fit:
    """Hold a `curve` fitted to all points, the `others` fitted to all but one of them, and the `residuals [n]`."""

    def __init__(self, fit: Callable, sizes: np.ndarray, losses: np.ndarray):
        self.curve = fit(sizes, losses)
        self.others = [fit(np.delete(sizes, n), np.delete(losses, n)) for n in range(len(sizes))]
        self.losses, self.residuals = losses, losses - self.curve(sizes)

    def error(self, name: str, function: Callable = float) -> float:
        """Return the jackknife error of a function of a parameter of the curve."""
        values = [function(getattr(curve, name)) for curve in self.others]
        return float(np.sqrt((len(values) - 1) * np.var(values)))

    def estimate(self, name: str) -> str:
        """Format a parameter of the curve with its error."""
        return f"{getattr(self.curve, name):.3f} ± {self.error(name):.3f}"

    @property
    def has_asymptote(self) -> bool:
        """Return whether no search ended at a bound, and L_inf is over two standard errors below the lowest loss."""
        is_at_bound = any(curve.is_at_bound for curve in (self.curve, *self.others))
        return not is_at_bound and bool(2 * self.error("asymptote") < min(self.losses) - self.curve.asymptote)

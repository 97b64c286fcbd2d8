"""Curves through a handful of points (N, loss), and how far they can be trusted.

    power law            L(N) = L_inf + a (N / M)^-b,   L_inf >= 0, M the geometric mean of the sizes
    pure power law       the same with L_inf = 0
    parabola             L(N) = c + k ln(N / N*)^2        for a fixed compute (Hoffmann et al., 2022, approach 2)

For a given b the power law is linear in L_inf and a, so b is searched alone (variable projection; Golub & Pereyra,
1973), least squares in nats. Errors are jackknife estimates: each point is left out once (Efron & Tibshirani, 1993,
chapter 11). With five points and three unknowns they are rough themselves.
"""

import dataclasses

import numpy as np

EXPONENTS = (0.01, 3.0)  # b is searched between
SMALL = 1e-6  # nats
FAR = 20  # e-foldings of the size
GOLDEN = (np.sqrt(5) - 1) / 2


@dataclasses.dataclass(frozen=True)
class PowerLaw:
    """`floor + scale (N / middle)^-exponent`, in nats."""

    floor: float
    scale: float
    exponent: float
    middle: float

    def __call__(self, sizes):
        return self.floor + self.scale * (np.asarray(sizes) / self.middle) ** -self.exponent

    @property
    def at_a_border(self) -> bool:
        """Whether the search ended where it had to."""
        low, high = EXPONENTS
        return self.floor < SMALL or not 1.01 * low < self.exponent < 0.99 * high


@dataclasses.dataclass(frozen=True)
class Parabola:
    """`level + slope u + curvature u^2` with u = ln(N / middle), in nats."""

    level: float
    slope: float
    curvature: float
    middle: float

    def __call__(self, sizes):
        u = np.log(np.asarray(sizes) / self.middle)
        return self.level + self.slope * u + self.curvature * u**2

    @property
    def best(self) -> float | None:
        """N*, where it is lowest; None where it opens downwards, or is a line as far as one can see."""
        if self.curvature <= 0 or abs(self.slope) > 2 * FAR * self.curvature:
            return None
        return float(self.middle * np.exp(-self.slope / (2 * self.curvature)))


def power_law(sizes, losses, with_floor=True) -> PowerLaw:
    """The power law of least squares, with `L_inf` or with 0 in its place."""
    sizes, losses = np.asarray(sizes, "float64"), np.asarray(losses, "float64")
    middle = np.exp(np.log(sizes).mean())

    def solved(exponent):
        x = (sizes / middle) ** -exponent
        floor = 0.0
        if with_floor:
            variance = np.square(x - x.mean()).sum()
            floor = max(0.0, losses.mean() - x.mean() * ((x - x.mean()) * losses).sum() / variance)
        scale = (x * (losses - floor)).sum() / np.square(x).sum()
        return np.square(floor + scale * x - losses).sum(), PowerLaw(
            float(floor), float(scale), exponent, float(middle)
        )

    grid = np.geomspace(*EXPONENTS, 200)
    best = int(np.argmin([solved(exponent)[0] for exponent in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(40):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if solved(left)[0] < solved(right)[0] else (left, high)
    return solved(float((low + high) / 2))[1]


def parabola(sizes, losses) -> Parabola:
    """The parabola of least squares in ln N."""
    u = np.log(np.asarray(sizes, "float64"))
    curvature, slope, level = np.polyfit(u - u.mean(), np.asarray(losses, "float64"), 2)
    return Parabola(float(level), float(slope), float(curvature), float(np.exp(u.mean())))


def left_out(fit, sizes, losses) -> list:
    """The fits without one of the points each."""
    return [fit(np.delete(sizes, n), np.delete(losses, n)) for n in range(len(sizes))]


def jackknife(values) -> float:
    """The standard error of an estimate from those without one of the points each, `[n]`."""
    values = np.asarray(values, "float64")
    return float(np.sqrt((len(values) - 1) * np.square(values - values.mean()).mean()))


def identified(law: PowerLaw, without: list[PowerLaw], losses) -> bool:
    """Whether the points say where the power law ends.

    They do when no fit stopped at a border of the search, with all points or without one of them, and two standard
    errors of L_inf are less than what it lies below the lowest loss.
    """
    if any(fit.at_a_border for fit in (law, *without)):
        return False
    return bool(2 * jackknife([fit.floor for fit in without]) < min(losses) - law.floor)

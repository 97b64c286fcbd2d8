"""Group the runs by family and budget, and fit the curves of each group."""

import functools
from collections.abc import Sequence

import numpy as np

from keras_seq.evaluation.scaling_laws import Fit, fit_parabola, fit_power_law

fit_pure_power_law = functools.partial(fit_power_law, with_asymptote=False)
UNKNOWN = "not identified"


class Group:
    """The runs of one family with one budget, by size, and what their points determine.

    Attributes:
        rows: Results by size, each with the `residual` of its loss.
        fit: That of the curve that is used: the parabola for equal compute, and for equal tokens the power law with an
            asymptote if it is identified, else the pure one.
        estimates: Name, fit, L_inf, b and N* of each curve.
        answer: L_inf for equal tokens, N* for equal compute.
    """

    def __init__(self, rows: Sequence[dict]):
        self.rows = sorted(rows, key=lambda row: row["non_embedding_parameters"])
        self.sizes = np.array([row["non_embedding_parameters"] for row in self.rows], "float64")
        self.losses = np.array([row["val_loss"] for row in self.rows])
        self.family, self.budget = rows[0]["model"], rows[0]["budget"]
        self.has_asymptote = self.has_best_size = False
        if self.budget == "tokens":
            law, pure = (Fit(function, self.sizes, self.losses) for function in (fit_power_law, fit_pure_power_law))
            self.has_asymptote = law.has_asymptote
            self.fit = law if self.has_asymptote else pure
            known = [law.estimate(name) if self.has_asymptote else UNKNOWN for name in ("asymptote", "exponent")]
            self.answer = known[0]
            self.estimates = [("power law", law, *known, "-")]
            self.estimates += [("pure power law", pure, "0", pure.estimate("exponent"), "-")]
        else:
            self.fit, (low, *_, high) = Fit(fit_parabola, self.sizes, self.losses), self.sizes
            self.has_best_size = all(low < curve.best_size < high for curve in (self.fit.curve, *self.fit.others))
            self.answer = UNKNOWN
            if self.has_best_size:
                factor = np.exp(self.fit.error("best_size", np.log))
                self.answer = f"{rounded(self.fit.curve.best_size):,.0f}, within a factor of {factor:.2f}"
            self.estimates = [("parabola", self.fit, "-", "-", self.answer)]
        self.rows = [{**row, "residual": each} for row, each in zip(self.rows, self.fit.residuals, strict=True)]

    @property
    def gain(self) -> float:
        """Percentage by which twice the middle size lowers the loss, by the curve."""
        middle = self.sizes[len(self.sizes) // 2]
        return 100 * (1 - self.fit.curve(2 * middle) / self.fit.curve(middle))


def rounded(value: float) -> float:
    """Round to two significant digits."""
    return float(f"{value:.2g}")


def group_runs(rows: Sequence[dict]) -> dict[str, list[Group]]:
    """Return the groups of runs by budget."""
    groups = {"tokens": {}, "compute": {}}
    for row in rows:
        groups[row["budget"]].setdefault(row["model"], []).append(row)
    return {budget: [Group(runs) for runs in families.values()] for budget, families in groups.items()}


def verdict(groups: dict[str, list[Group]]) -> str:
    """Say what twice the size is worth with equal tokens, and which size is best with equal compute."""
    gains = [f"{group.gain:.1f} % ({group.family}; L_inf {group.answer})" for group in groups["tokens"]]
    sizes = [f"{group.answer} ({group.family})" for group in groups["compute"]]
    return (
        f"With equal tokens, twice the size lowers the loss by {' and '.join(gains)}. With equal compute, the best "
        f"size by the parabola is {' and '.join(sizes)}. One training a point, so errors are rough."
    )


def best_trained(group: Group) -> str:
    """Describe the run of the lowest loss."""
    row = group.rows[int(group.losses.argmin())]
    size, tokens = row["non_embedding_parameters"], row["train_tokens"]
    return f"N = {size:,} with {tokens:,} tokens, {tokens / size:.0f} per parameter ({group.family})"

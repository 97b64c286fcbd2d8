"""How sure a difference between two models is: a bootstrap over the text and over the seeds (Efron, 1979).

    difference = mean over windows of d_w + seeds' shares        d_w = mean over seeds, second - first, of window w

Both models are scored on the same windows, so these are paired: runs of neighbouring windows are drawn with
replacement (a text is not independent from line to line), the same for both. Seeds are not paired: seed 0 of one model
has nothing to do with seed 0 of the other, so they are drawn for each model by itself. Their deviations are widened by
sqrt(S / (S - 1)), because S seeds scatter less around their own mean than around the true one, and narrowed by what the
windows explain already. With one seed the interval knows of the text alone.
"""

import dataclasses

import numpy as np

BLOCK = 16  # neighbouring windows drawn together
DRAWS = 10_000


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference and the interval that holds it with 95 % probability."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def paired_difference(first, second, seed=0) -> Difference:
    """The mean of `second` less that of `first`.

    Args:
        first: `[S, W]`, a loss for every seed and every window of the text, all windows of one length.
        second: `[S', W]`, of the other model, over the same windows.
        seed: of the draws.

    Raises:
        ValueError: the windows are not the same number, or there is none.
    """
    first, second = np.asarray(first, "float64"), np.asarray(second, "float64")
    shapes = first.shape, second.shape
    if {len(shape) for shape in shapes} != {2} or first.shape[1] != second.shape[1] or not (first.size and second.size):
        raise ValueError(f"Losses {shapes[0]} and {shapes[1]}; expected [seeds, windows], the same windows in both.")
    random = np.random.default_rng(seed)
    by_window = second.mean(axis=0) - first.mean(axis=0)
    drawn = _over_windows(by_window, random) + _over_seeds(second, random) - _over_seeds(first, random)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Difference(float(by_window.mean()), float(low), float(high))


def _over_windows(values, random):
    """Means of drawn runs of neighbouring windows, `[DRAWS]`; the text is taken as a ring, so none is drawn less."""
    count = len(values)
    length = min(BLOCK, max(1, count // 8))
    runs = np.convolve(np.concatenate([values, values[: length - 1]]), np.ones(length) / length, mode="valid")
    return runs[random.integers(count, size=(DRAWS, -(-count // length)))].mean(axis=1)


def _over_seeds(losses, random):
    """How far the mean of drawn seeds is from the mean of all, `[DRAWS]`."""
    count, windows = losses.shape
    if count == 1:
        return np.zeros(DRAWS)
    deviations = losses.mean(axis=1) - losses.mean()
    rest = losses - losses.mean(axis=0) - deviations[:, None]  # what neither the seed nor the window explains
    variance = np.sum(deviations**2) / (count - 1)
    of_windows = np.sum(rest**2) / ((count - 1) * max(1, windows - 1)) / windows
    if variance <= of_windows:
        return np.zeros(DRAWS)
    deviations *= np.sqrt(count / (count - 1) * (1 - of_windows / variance))
    return deviations[random.integers(count, size=(DRAWS, count))].mean(axis=1)

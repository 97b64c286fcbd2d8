"""Bootstrap interval of the difference between two models' losses, over text windows and seeds (Efron, 1979).

    difference = mean over windows w of d_w + deviations of the drawn seeds
    d_w        = mean over seeds of (loss of the second model - loss of the first one) in window w

Both models are scored on the same windows, so windows are paired: blocks of adjacent windows are drawn with
replacement, the same for both models (a block bootstrap, since neighboring windows are not independent). Seeds are not
paired: seed 0 of one model is unrelated to seed 0 of the other, so they are drawn for each model separately. Their
deviations are widened by sqrt(S / (S - 1)) for S seeds, since seeds scatter less around their own mean than around the
true mean, and reduced by the variance that the windows explain. With one seed the interval covers the variation over
the text only.
"""

import dataclasses

import numpy as np

BLOCK_WINDOWS = 16  # adjacent windows drawn together
NUM_SAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference with the bounds `low` and `high` of its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Return whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def paired_difference(first: np.ndarray, second: np.ndarray, seed: int = 0) -> Difference:
    """Compute the mean of `second` minus the mean of `first`, with its 95 % bootstrap interval.

    Args:
        first: Losses of one model, `[seeds, windows]`, all windows of one length.
        second: Losses of the other model on the same windows, `[seeds', windows]`.
        seed: Random seed of the bootstrap.

    Raises:
        ValueError: The arrays are not two-dimensional, are empty, or differ in their number of windows.
    """
    first, second = np.asarray(first, "float64"), np.asarray(second, "float64")
    shapes = first.shape, second.shape
    if {len(shape) for shape in shapes} != {2} or first.shape[1] != second.shape[1] or not (first.size and second.size):
        raise ValueError(f"Losses {shapes[0]} and {shapes[1]}; expected [seeds, windows], the same windows in both.")
    random = np.random.default_rng(seed)
    by_window = second.mean(axis=0) - first.mean(axis=0)
    samples = _resample_windows(by_window, random) + _resample_seeds(second, random) - _resample_seeds(first, random)
    low, high = np.quantile(samples, (0.025, 0.975))
    return Difference(float(by_window.mean()), float(low), float(high))


def _resample_windows(values, random):
    """Draw means of blocks of adjacent windows, `[NUM_SAMPLES]`; blocks wrap around the end of the text."""
    count = len(values)
    length = min(BLOCK_WINDOWS, max(1, count // 8))
    blocks = np.convolve(np.concatenate([values, values[: length - 1]]), np.ones(length) / length, mode="valid")
    return blocks[random.integers(count, size=(NUM_SAMPLES, -(-count // length)))].mean(axis=1)


def _resample_seeds(losses, random):
    """Draw deviations of the mean over drawn seeds from the mean over all seeds, `[NUM_SAMPLES]`."""
    count, windows = losses.shape
    if count == 1:
        return np.zeros(NUM_SAMPLES)
    deviations = losses.mean(axis=1) - losses.mean()
    residuals = losses - losses.mean(axis=0) - deviations[:, None]  # explained by neither the seed nor the window
    variance = np.sum(deviations**2) / (count - 1)
    window_variance = np.sum(residuals**2) / ((count - 1) * max(1, windows - 1)) / windows
    if variance <= window_variance:
        return np.zeros(NUM_SAMPLES)
    deviations *= np.sqrt(count / (count - 1) * (1 - window_variance / variance))
    return deviations[random.integers(count, size=(NUM_SAMPLES, count))].mean(axis=1)

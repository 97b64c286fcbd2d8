"""Score forecasts of the next H values by proper scores, the lowest for the true distribution.

    quantile   q_1 = m_1 + z_1,   q_n = q_{n-1} + softplus(z_n + d_n),   m_n: the quantiles of a standard normal
               distribution, which z = 0 gives: softplus(d_n) = m_n - m_{n-1}
               loss = mean over levels p of max(p (y - q_p), (p - 1) (y - q_p))
    Student t  location z_1, scale softplus(z_2) + EPSILON, degrees of freedom v = 2 + softplus(z_3)
               loss = log scale + log(pi v) / 2 - R(v / 2) + (v + 1) / 2 log(1 + x^2 / v),   x = (y - location) / scale
               R(a) = log Gamma(a + 1/2) - log Gamma(a)

z: outputs of a last layer with `loss.num_outputs` units, `Dense(loss.num_outputs)`, after any layers for sequences. The
loss of a quantile is that of Koenker & Bassett (1978, "Regression quantiles"); twice its mean over evenly spread levels
nears the CRPS (Gneiting & Raftery, 2007). H quantiles at once: Wen et al. (2017, arXiv:1711.11053); likelihoods of
recurrent networks: Salinas et al. (2020, "DeepAR").
"""

import abc
import itertools
import math
import statistics
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.evaluation.losses import WeightedMean, over_targets
from keras_seq.ops.tensor_checks import keras_mask

EPSILON = 1e-6
SHIFT = 5  # of R's argument, so that its series is exact to float32 for all a of at least 1
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


class ForecastLoss(WeightedMean):
    """Base class of the losses of forecasts: what a mask, missing values and weights do."""

    outputs_per_value: int

    def __init__(self, horizon: int, reduction: str | None, name: str, **kwargs):
        super().__init__(reduction, name, **kwargs)
        self.horizon = checks.positive_integer("horizon", horizon)

    @property
    def num_outputs(self) -> int:
        """Units of the layer before the loss."""
        return self.horizon * self.outputs_per_value

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Compute the reduced loss.

        Args:
            y_true: The next values `[..., H]`; NaN where one is missing, which counts nowhere.
            y_pred: Outputs `[..., num_outputs]`, with their Keras mask `[...]`.
            sample_weight: Weights `[B]`, `[B, T]` or `[B, T, H]`, or None.
        """
        values, mask = ops.cast(ops.convert_to_tensor(y_true), "float32"), keras_mask(y_pred)
        if values.shape[-1] != self.horizon:
            expected = f"[..., {self.horizon}], as horizon={self.horizon}"
            raise ValueError(f"y_true has shape {tuple(values.shape)}; expected {expected}.")
        counts = ops.logical_not(ops.isnan(values))
        if mask is not None:
            counts = ops.logical_and(counts, over_targets("mask", mask, values))
        weights = ops.cast(counts, "float32")
        if sample_weight is not None:
            weights = ops.where(counts, ops.cast(over_targets("sample_weight", sample_weight, values), "float32"), 0.0)
        outputs = ops.where(counts[..., None], self._by_value(y_pred), 0.0)  # not even a gradient of NaN at padding
        outputs = ops.reshape(outputs, (*ops.shape(values)[:-1], self.num_outputs))
        return self.weighted(ops.where(counts, values, 0.0), outputs, weights)

    def call(self, y_true, y_pred):
        """Compute the loss of each value, `[..., H]`."""
        return self._losses(ops.cast(y_true, "float32"), self._by_value(y_pred))

    def _by_value(self, outputs):
        """Split outputs `[..., num_outputs]` into those of each value, float32 `[..., H, N]`."""
        outputs = ops.cast(ops.convert_to_tensor(outputs), "float32")
        if outputs.shape[-1] != self.num_outputs:
            expected = f"[..., {self.num_outputs}]: end the model with Dense(loss.num_outputs)"
            raise ValueError(f"y_pred has shape {tuple(outputs.shape)}; expected {expected}.")
        return ops.reshape(outputs, (*ops.shape(outputs)[:-1], self.horizon, self.outputs_per_value))

    @abc.abstractmethod
    def _losses(self, values, outputs):
        """Compute the losses `[..., H]` of values `[..., H]` and outputs `[..., H, N]`."""

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), "horizon": self.horizon}


@keras.saving.register_keras_serializable(package="keras_seq")
class QuantileLoss(ForecastLoss):
    """Score quantiles of each of the next H values, which never cross.

    ```python
    loss = QuantileLoss(levels=(0.1, 0.5, 0.9), horizon=24)
    model = keras.Sequential([layers.LSTM(64, return_sequences=True), layers.Dense(loss.num_outputs)])
    model.compile("adam", loss)  # values [B, T, 1], next ones [B, T, 24]
    loss.quantiles(model(x))  # [B, T, 24, 3]
    ```

    Args:
        levels: Probabilities of the quantiles, between 0 and 1, in ascending order.
        horizon: H, the number of next values at every position.
        reduction: "mean_with_sample_weight" for the mean over values, "sum", or "none" for `[B, T, H]`.
        name: Name in Keras's logs.
        **kwargs: Further arguments of `keras.losses.Loss`.

    Values that are NaN are missing. Positions with a mask of false and values that are missing count nowhere.

    Raises:
        ValueError: An argument is out of its range, or a shape does not fit.
    """

    def __init__(
        self,
        levels: Sequence[float] = LEVELS,
        horizon: int = 1,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "quantile_loss",
        **kwargs,
    ):
        super().__init__(horizon, reduction, name, **kwargs)
        self.levels = _checked_levels(levels)
        edges = (0.0, *self.levels, 1.0)
        if not all(low < high for low, high in itertools.pairwise(edges)):
            raise ValueError(f"levels={self.levels}; expected numbers between 0 and 1 in ascending order.")
        self.outputs_per_value = len(self.levels)
        normal = np.array([statistics.NormalDist().inv_cdf(level) for level in self.levels])
        self._normal = np.append(normal[:1], np.log(np.expm1(np.diff(normal)))).astype("float32")  # m_1, d_2, d_3, ...

    def quantiles(self, outputs):
        """Compute the quantiles `[..., H, levels]` of outputs `[..., num_outputs]`."""
        return self._ascending(self._by_value(outputs))

    def _ascending(self, outputs):
        outputs = outputs + self._normal
        return ops.cumsum(ops.concatenate([outputs[..., :1], ops.softplus(outputs[..., 1:])], axis=-1), axis=-1)

    def _losses(self, values, outputs):
        difference, levels = values[..., None] - self._ascending(outputs), ops.array(self.levels, "float32")
        return ops.mean(ops.maximum(levels * difference, (levels - 1) * difference), axis=-1)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), "levels": self.levels}


@keras.saving.register_keras_serializable(package="keras_seq")
class StudentTLoss(ForecastLoss):
    """Score a Student t distribution of each of the next H values by its negative log-likelihood, in nats per value.

    ```python
    loss = StudentTLoss()
    model = keras.Sequential([layers.LSTM(64, return_sequences=True), layers.Dense(loss.num_outputs)])
    model.compile("adam", loss)  # values [B, T, 1], the next one [B, T, 1]
    location, scale, degrees_of_freedom = loss.parameters(model(x))  # each [B, T, 1]
    ```

    Args:
        horizon: H, the number of next values at every position.
        reduction: "mean_with_sample_weight" for the mean over values, "sum", or "none" for `[B, T, H]`.
        name: Name in Keras's logs.
        **kwargs: Further arguments of `keras.losses.Loss`.

    There are more than two degrees of freedom, so that the variance is finite. Values that are NaN are missing.
    Positions with a mask of false and values that are missing count nowhere.

    Raises:
        ValueError: An argument is out of its range, or a shape does not fit.
    """

    outputs_per_value = 3

    def __init__(
        self,
        horizon: int = 1,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "student_t_loss",
        **kwargs,
    ):
        super().__init__(horizon, reduction, name, **kwargs)

    def parameters(self, outputs):
        """Compute location, scale and degrees of freedom, each `[..., H]`, of outputs `[..., num_outputs]`."""
        return self._parameters(self._by_value(outputs))

    @staticmethod
    def _parameters(outputs):
        return outputs[..., 0], ops.softplus(outputs[..., 1]) + EPSILON, 2 + ops.softplus(outputs[..., 2])

    def _losses(self, values, outputs):
        location, scale, freedom = self._parameters(outputs)
        x = (values - location) / scale
        constant = ops.log(scale) + 0.5 * ops.log(math.pi * freedom) - _log_gamma_ratio(freedom / 2)
        return constant + 0.5 * (freedom + 1) * ops.log1p(ops.square(x) / freedom)

    def sample(self, outputs, random: np.random.Generator) -> np.ndarray:
        """Draw a value of each distribution, float32 `[..., H]`."""
        location, scale, freedom = map(ops.convert_to_numpy, self.parameters(outputs))
        return (location + scale * random.standard_t(freedom)).astype("float32")

    def quantiles(self, outputs, levels: Sequence[float] = LEVELS) -> np.ndarray:
        """Compute quantiles `[..., H, levels]`, by SciPy."""
        from scipy import stats

        location, scale, freedom = (ops.convert_to_numpy(value)[..., None] for value in self.parameters(outputs))
        return location + scale * stats.t.ppf(_checked_levels(levels), freedom)


def _checked_levels(levels):
    levels = tuple(checks.number("levels", level, min_value=0, max_value=1) for level in np.atleast_1d(levels))
    if not levels:
        raise ValueError("levels=(); expected numbers between 0 and 1.")
    return levels


def _log_gamma_ratio(a):
    """Compute log Gamma(a + 1/2) - log Gamma(a) for a >= 1, without the difference of large numbers."""
    steps = sum(ops.log1p(0.5 / (a + n)) for n in range(SHIFT))  # log((a + n + 1/2) / (a + n))
    b = a + SHIFT
    return 0.5 * ops.log(b) - 1 / (8 * b) + 1 / (192 * b**3) - 1 / (640 * b**5) - steps


# Scores of given quantiles or paths, in NumPy


def quantile_score(values: np.ndarray, quantiles: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Compute twice the mean quantile loss of values `[...]` by quantiles `[..., levels]`: near the CRPS, in y's unit.

    >>> quantile_score(np.array([3.0]), np.array([[1.0, 2.0]]), (0.25, 0.75)).tolist()
    [1.25]
    """
    levels = np.array(_checked_levels(levels))
    if np.shape(quantiles)[-1:] != levels.shape:
        raise ValueError(f"quantiles of shape {np.shape(quantiles)}; expected {len(levels)}, as levels, at the end.")
    difference = np.asarray(values)[..., None] - quantiles
    return 2 * np.maximum(levels * difference, (levels - 1) * difference).mean(axis=-1)

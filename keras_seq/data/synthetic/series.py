"""Draw series whose next values have a known distribution, so that no forecast is better than that of the source.

    seasonal     y_t = s_{t mod P} + u_t,     u_t = a u_{t-1} + b e_t
    switching    y_t = m_{k_t} + b e_t,       k_t: a Markov chain that is not observed (Hamilton, 1989)
    volatility   y_t = v_t^(1/2) e_t,         v_t = w + a y_{t-1}^2 + b v_{t-1}: GARCH(1, 1) (Bollerslev, 1986)

e_t are independent and normal. The state of a source after a value holds all of the past that the future depends on.
"""

import abc
from dataclasses import dataclass

import numpy as np

LOG_2PI = np.log(2 * np.pi)


class SeriesSource(abc.ABC):
    """Base class of the sources; a state is a vector `[S]`."""

    season = 1  # period of the seasonal naive forecast

    @abc.abstractmethod
    def start(self, num_series: int, random: np.random.Generator) -> np.ndarray:
        """Return the states `[N, S]` before the first values."""

    @abc.abstractmethod
    def draw(self, state: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw the next value of each series, `[N]`, after states `[N, S]`."""

    @abc.abstractmethod
    def log_density(self, state: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Return log p of the next values `[N]` after states `[N, S]`, in nats."""

    @abc.abstractmethod
    def update(self, state: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Return the states `[N, S]` after values `[N]`."""

    def paths(self, state, horizon: int, num_paths: int, seed: int) -> np.ndarray:
        """Draw independent paths of values that may follow states `[N, S]`, float64 `[N, num_paths, horizon]`."""
        random, state = np.random.default_rng((seed, 1)), np.repeat(state, num_paths, axis=0)
        values = np.empty((len(state), horizon))
        for step in range(horizon):
            values[:, step] = self.draw(state, random)
            state = self.update(state, values[:, step])
        return values.reshape(-1, num_paths, horizon)

    def sample(self, length: int, seed: int = 0) -> np.ndarray:
        """Draw a series, float64 `[length]`."""
        random = np.random.default_rng((seed, 0))
        state, values = self.start(1, random), np.empty(length)
        for t in range(length):
            (values[t],) = self.draw(state, random)
            state = self.update(state, values[t : t + 1])
        return values

    def follow(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read a series from its start: return the states `[N, S]` after its values `[N]`, and log p of each `[N]`."""
        state, states, log_densities = self.start(1, np.random.default_rng(0)), [], np.empty(len(values))
        for t in range(len(values)):
            value = values[t : t + 1]
            (log_densities[t],) = self.log_density(state, value)
            state = self.update(state, value)
            states.append(state[0])
        return np.array(states), log_densities


def _log_normal(x, deviation):
    """Return the log density of a normal distribution with mean zero."""
    return -0.5 * (x / deviation) ** 2 - np.log(deviation) - 0.5 * LOG_2PI


@dataclass(frozen=True)
class SeasonalSeries(SeriesSource):
    """A fixed pattern of 24 values and autocorrelated noise; the state is `(t mod 24, u_t)`."""

    season = 24
    correlation: float = 0.8
    deviation: float = 0.5

    @property
    def pattern(self) -> np.ndarray:
        """The pattern, float64 `[24]`: two harmonics of a day."""
        angle = 2 * np.pi * np.arange(self.season) / self.season
        return 2 * np.sin(angle) + np.cos(2 * angle + 1)

    def start(self, num_series, random):
        """Return the phase 0 with noise 0."""
        return np.zeros((num_series, 2))

    def _mean(self, state):
        return self.pattern[state[:, 0].astype(int)] + self.correlation * state[:, 1]

    def draw(self, state, random):
        """Draw the next values."""
        return self._mean(state) + self.deviation * random.standard_normal(len(state))

    def log_density(self, state, value):
        """Return their log density."""
        return _log_normal(value - self._mean(state), self.deviation)

    def update(self, state, value):
        """Return the next phase and the noise."""
        noise = value - self.pattern[state[:, 0].astype(int)]
        return np.stack([(state[:, 0] + 1) % self.season, noise], axis=1)


@dataclass(frozen=True)
class SwitchingSeries(SeriesSource):
    """Three levels in turn, and noise; the state is `p(k_{t+1} | y_1 ... y_t)` by the forward algorithm, `[3]`."""

    levels: tuple[float, ...] = (-2.0, 0.0, 3.0)
    stay: tuple[float, ...] = (0.95, 0.8, 0.9)  # probability of each level to last for another value
    deviation: float = 0.7

    @property
    def transitions(self) -> np.ndarray:
        """Probabilities of the next level, float64 `[3, 3]`."""
        stay = np.array(self.stay)
        return np.diag(stay) + np.roll(np.diag(1 - stay), 1, axis=1)

    def start(self, num_series, random):
        """Return the stationary distribution, proportional to the mean time at each level."""
        times = 1 / (1 - np.array(self.stay))
        return np.tile(times / times.sum(), (num_series, 1))

    def draw(self, state, random):
        """Draw the next values, each of a level drawn first."""
        level = (random.random((len(state), 1)) > np.cumsum(state, axis=1)[:, :-1]).sum(axis=1)
        return np.array(self.levels)[level] + self.deviation * random.standard_normal(len(state))

    def _joint(self, state, value):
        """Return log p(k, y) of each level, `[N, 3]`."""
        return np.log(state) + _log_normal(value[:, None] - np.array(self.levels), self.deviation)

    def log_density(self, state, value):
        """Return the log density of the mixture."""
        return np.logaddexp.reduce(self._joint(state, value), axis=1)

    def update(self, state, value):
        """Return the distribution of the next level."""
        joint = self._joint(state, value)
        return np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)) @ self.transitions


@dataclass(frozen=True)
class VolatilitySeries(SeriesSource):
    """Values without a predictable mean, whose variance is predictable; the state is the next variance `v_{t+1}`."""

    base: float = 0.05
    shock: float = 0.25
    persistence: float = 0.7

    def start(self, num_series, random):
        """Return the mean variance."""
        return np.full((num_series, 1), self.base / (1 - self.shock - self.persistence))

    def draw(self, state, random):
        """Draw the next values."""
        return np.sqrt(state[:, 0]) * random.standard_normal(len(state))

    def log_density(self, state, value):
        """Return their log density."""
        return _log_normal(value, np.sqrt(state[:, 0]))

    def update(self, state, value):
        """Return the next variance."""
        return self.base + self.shock * value[:, None] ** 2 + self.persistence * state


SERIES: dict[str, SeriesSource] = {
    "seasonal": SeasonalSeries(),
    "switching": SwitchingSeries(),
    "volatility": VolatilitySeries(),
}
"""Sources of series by name."""

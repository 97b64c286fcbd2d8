"""Initializers of gates, decays and mixtures: where a layer starts that is to remember."""

import math

import keras
from keras import ops

from keras_seq.layers.base.configuration import Initializer


@keras.saving.register_keras_serializable(package="keras_seq")
class DecayRadius(Initializer):
    """Initialize Lambda so that exp(-softplus(Lambda)), the decay of each feature, is spaced between two bounds."""

    def __init__(self, min_radius: float = 0.9, max_radius: float = 0.999):
        self.min_radius, self.max_radius = min_radius, max_radius

    def __call__(self, shape, dtype=None):
        """Return one number for each feature; squares of the decays are evenly spaced, as points in a ring."""
        squares = ops.linspace(self.min_radius**2, self.max_radius**2, shape[0], dtype=dtype or "float32")
        return ops.log(ops.expm1(-0.5 * ops.log(squares)))


@keras.saving.register_keras_serializable(package="keras_seq")
class EvenlySpaced(Initializer):
    """Initialize a vector with evenly spaced numbers."""

    def __init__(self, first: float, last: float):
        self.first, self.last = first, last

    def __call__(self, shape, dtype=None):
        """Return the numbers."""
        return ops.linspace(self.first, self.last, shape[0], dtype=dtype or "float32")


@keras.saving.register_keras_serializable(package="keras_seq")
class TimeStepBias(Initializer):
    """Initialize biases whose softplus, the time step, is log-uniformly spaced between two bounds."""

    def __init__(self, min_dt: float = 1e-3, max_dt: float = 0.1):
        self.min_dt, self.max_dt = min_dt, max_dt

    def __call__(self, shape, dtype=None):
        """Return one bias for each channel."""
        log_dt = ops.linspace(math.log(self.min_dt), math.log(self.max_dt), shape[0], dtype=dtype or "float32")
        return ops.log(ops.expm1(ops.exp(log_dt)))


@keras.saving.register_keras_serializable(package="keras_seq")
class ShiftRamp(Initializer):
    """Initialize mu: 1 - (n / D)^power for feature n, so the first features see the previous position."""

    def __init__(self, power: float):
        self.power = power

    def __call__(self, shape, dtype=None):
        """Return one number for each feature."""
        return 1.0 - ops.power(ops.arange(shape[0], dtype=dtype or "float32") / shape[0], self.power)

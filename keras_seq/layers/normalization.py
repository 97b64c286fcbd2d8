"""Keras's layer and RMS normalisation (Ba et al., 2016; Zhang & Sennrich, 2019), quicker over many rows.

n = (x - mean) / sqrt(variance + epsilon),   y = gamma n + beta           over the numbers of a position
RMS: the same with 0 for the mean, and without beta
"""

import keras
from keras import ops

from keras_seq import kernels


def normalize(x, gamma, beta, epsilon, centered):
    """The last axis of x normalised.

    Args:
        x: `[..., D]`.
        gamma: `[D]`.
        beta: `[D]`, or None.
        epsilon: added to the variance.
        centered: whether the mean is taken off first.
    """
    if centered:
        return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)
    return ops.rms_normalization(x, gamma, axis=-1, epsilon=epsilon)


def _normalize(*args):
    return kernels.dispatch("normalization", normalize, *args)(*args)


@keras.saving.register_keras_serializable(package="keras_seq")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis.

    Args:
        epsilon: added to the variance.
        center: whether there is a beta.
    """

    def __init__(self, epsilon=1e-5, center=True, **kwargs):
        super().__init__(axis=-1, epsilon=epsilon, center=center, scale=True, **kwargs)

    def call(self, x):
        """`[..., D]` -> the same shape."""
        return ops.cast(_normalize(x, self.gamma, self.beta, self.epsilon, True), self.compute_dtype)

    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "epsilon": self.epsilon, "center": self.center}


@keras.saving.register_keras_serializable(package="keras_seq")
class RMSNormalization(keras.layers.RMSNormalization):
    """`keras.layers.RMSNormalization` of the last axis.

    Args:
        epsilon: added to the mean square.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(axis=-1, epsilon=epsilon, **kwargs)
        self.supports_masking = True  # Keras's does, and does not say so

    def call(self, x):
        """`[..., D]` -> the same shape."""
        return _normalize(x, self.scale, None, self.epsilon, False)

    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "epsilon": self.epsilon}


NORMALIZATIONS = {"layer": LayerNormalization, "rms": RMSNormalization}

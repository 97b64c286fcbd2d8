"""Layer and RMS normalization (Ba et al., 2016; Zhang & Sennrich, 2019) with an optimized kernel for many rows.

n = (x - mean) / sqrt(variance + epsilon),   y = gamma n + beta           over the features of a position
RMS: the same with 0 for the mean, and without beta; zero-centered RMS: y = (1 + w) n, whose w starts at 0
"""

import keras
from keras import ops

from keras_seq import kernels
from keras_seq.layers.direct_call import DirectCall


def normalize(x, gamma, beta, epsilon: float, centered: bool):
    """Normalize the last axis of x.

    Args:
        x: `[..., D]`.
        gamma: `[D]`.
        beta: `[D]`, or None.
        epsilon: Added to the variance.
        centered: Whether to subtract the mean first.

    Returns:
        `[..., D]`.
    """
    if centered:
        return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)
    return ops.rms_normalization(x, gamma, axis=-1, epsilon=epsilon)


def _normalize(*args):
    return kernels.dispatch("normalization", normalize, *args)(*args)


@keras.saving.register_keras_serializable(package="keras_seq")
class LayerNormalization(DirectCall, keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis.

    Args:
        epsilon: Added to the variance.
        center: Whether to add a learned offset, beta.
        **kwargs: Those of `keras.layers.LayerNormalization` except `axis` and `scale`.
    """

    float_weight = "gamma"
    exports_to_onnx = keras.backend.backend() == "tensorflow"  # torch's exporter loses an axis

    def __init__(self, epsilon: float = 1e-5, center: bool = True, **kwargs):
        super().__init__(axis=-1, epsilon=epsilon, center=center, scale=True, **kwargs)

    def call(self, inputs):
        """Normalize `[..., D]`."""
        return ops.cast(_normalize(inputs, self.gamma, self.beta, self.epsilon, True), self.compute_dtype)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        config = super().get_config()
        return {name: value for name, value in config.items() if name not in ("axis", "scale", "rms_scaling")}


@keras.saving.register_keras_serializable(package="keras_seq")
class RMSNormalization(DirectCall, keras.layers.RMSNormalization):
    """`keras.layers.RMSNormalization` over the last axis.

    Args:
        epsilon: Added to the mean square.
        **kwargs: Those of `keras.layers.Layer`.
    """

    float_weight = "scale"
    exports_to_onnx = keras.backend.backend() == "tensorflow"  # torch's exporter loses an axis

    def __init__(self, epsilon: float = 1e-6, **kwargs):
        super().__init__(axis=-1, epsilon=epsilon, **kwargs)
        self.supports_masking = True  # Keras's layer passes masks on but does not set this

    def call(self, inputs):
        """Normalize `[..., D]`."""
        return _normalize(inputs, self.scale, None, self.epsilon, False)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**keras.layers.Layer.get_config(self), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="keras_seq")
class ZeroCenteredRMSNormalization(RMSNormalization):
    """RMS normalization whose weights are the differences of the scales from 1, so that weight decay draws these to 1.

    It is Gemma's (Gemma Team, 2024, arXiv:2403.08295).

    Args:
        epsilon: Added to the mean square.
        **kwargs: Those of `keras.layers.Layer`.
    """

    def build(self, inputs_shape):
        """Create the weights, zeros, for inputs `[..., D]`."""
        self.scale = self.add_weight(name="scale", shape=(inputs_shape[-1],), initializer="zeros")
        self.built = True

    def call(self, inputs):
        """Normalize `[..., D]`."""
        return _normalize(inputs, ops.add(self.scale, 1), None, self.epsilon, False)


NORMALIZATIONS = {
    "layer": LayerNormalization,
    "rms": RMSNormalization,
    "zero_centered_rms": ZeroCenteredRMSNormalization,
}

"""Layer and RMS normalization (Ba et al., 2016; Zhang & Sennrich, 2019).

n = (x - mean) / sqrt(variance + epsilon),   y = gamma n + beta           over the features of a position
RMS: the same with 0 for the mean, and without beta
"""

from keras import ops

from keras_seq.ops.dispatch import optimized


@optimized
def normalize(x, gamma, beta, epsilon: float, centered: bool):
    """Normalize the last axis of `x [..., D]`, with `gamma [D]` and `beta [D]` or None; the mean counts if centered."""
    if centered:
        return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)
    return ops.rms_normalization(x, gamma, axis=-1, epsilon=epsilon)

"""Layer and RMS normalization; the formula is that of `keras_seq/layers/normalization.py`."""

from keras import ops

from keras_seq.ops.dispatch import export_format, optimized


@optimized
def normalize(x, gamma, beta, epsilon: float, centered: bool):
    """Normalize the last axis of `x [..., D]`, with `gamma [D]` and `beta [D]` or None; the mean counts if centered."""
    if export_format() is not None:  # torch writes neither of Keras's two to ONNX
        x = x - ops.mean(x, axis=-1, keepdims=True) if centered else x
        x = x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + epsilon) * gamma
        return x if beta is None else x + beta
    if centered:
        return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)
    return ops.rms_normalization(x, gamma, axis=-1, epsilon=epsilon)

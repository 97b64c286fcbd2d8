"""Attention, and which positions may attend to which."""

import keras

from keras_seq.ops.attention.reference import (
    attention,
    batch_and_length,
    causal_attention,
    checked_attention_inputs,
    compute_attention_mask,
    compute_positions,
    count_elements,
    decay_bias,
    masked_attention,
    segment_numbers,
    softmax_attention,
    true_first,
    write_slots,
)

if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.attention.tensorflow
elif keras.backend.backend() == "jax":
    import keras_seq.ops.attention.jax
elif keras.backend.backend() == "torch":
    import keras_seq.ops.attention.torch  # noqa: F401  (binds the twins)

__all__ = [
    "attention",
    "batch_and_length",
    "causal_attention",
    "checked_attention_inputs",
    "compute_attention_mask",
    "compute_positions",
    "count_elements",
    "decay_bias",
    "masked_attention",
    "segment_numbers",
    "softmax_attention",
    "true_first",
    "write_slots",
]

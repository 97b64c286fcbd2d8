"""A whole LSTM or GRU in one call of a library, where a backend has one; there is no reference of it."""

import keras

from keras_seq.ops.dispatch import optimized


@optimized
def fused_rnn(kind: str, x, state, kernel, recurrent_kernel, bias, training: bool | None = None):
    """Compute a whole `"lstm"`, or `"gru"` with the reset after the matmul; ask `fused_rnn.twin` first.

    For `x [B, T, D]` and a state `(h, c)` or h, with the layer's three weights, it returns `(y [B, T, units], state)`.
    The reference is the projection of the inputs and `lstm` or `gru`, so it is not here.
    """
    raise NotImplementedError(f"no twin of this {kind}; expected fused_rnn.twin(...) to be asked first.")


@optimized
def stored_for_fused_rnn(matrix):
    """Return a matrix in the order of memory in which `fused_rnn` of an LSTM reads it."""
    return matrix


if keras.backend.backend() == "torch":
    import keras_seq.ops.fused_rnn.torch
else:
    import keras_seq.ops.fused_rnn.keras_layer  # noqa: F401  (binds the twins)

"""`layers.attention.causal_attention` on torch."""

from keras_seq.kernels.torch.scaled_dot_product import scaled_dot_product_attention


def supports(q, k, v, dropout=None, segments=None) -> bool:
    """Return whether there are no segments, which `masked_attention` takes as a mask.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, T, G, K]`.
        v: Values `[B, T, G, K']`.
        dropout: A `keras.layers.Dropout` for the weights, or None.
        segments: Number of the document at each position, int32 `[B, T]`, or None.
    """
    return segments is None


def apply(q, k, v, dropout=None, segments=None):
    """Compute causal attention, as `keras_seq.layers.attention.causal_attention`.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, T, G, K]` with G a divisor of H.
        v: Values `[B, T, G, K']`.
        dropout: A `keras.layers.Dropout` for the weights, or None.
        segments: None.

    Returns:
        y `[B, T, H, K']`.
    """
    return scaled_dot_product_attention(q, k, v, causal=True, dropout=dropout)

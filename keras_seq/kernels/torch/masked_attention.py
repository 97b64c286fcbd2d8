"""`layers.attention.attention` on torch, where the attention weights are not asked for."""

from keras_seq.kernels.torch.scaled_dot_product import scaled_dot_product_attention


def supports(q, k, v, mask, bias, dropout) -> bool:
    """Return whether queries, keys and values have the same batch size; the reference refuses others.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, S, G, K]`.
        v: Values `[B, S, G, K']`.
        mask: Booleans, or None.
        bias: Added to the scores, or None.
        dropout: A `keras.layers.Dropout` for the weights, or None.
    """
    return q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1] == v.shape[1]


def apply(q, k, v, mask, bias, dropout):
    """Compute attention without its weights.

    Args:
        q: Queries `[B, T, H, K]`.
        k: Keys `[B, S, G, K]` with G a divisor of H.
        v: Values `[B, S, G, K']`.
        mask: Booleans `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may be 1), or None.
        bias: Added to the scores, broadcastable to `[B, H, T, S]`, or None.
        dropout: A `keras.layers.Dropout` for the weights, or None.

    Returns:
        y `[B, T, H, K']`.
    """
    return scaled_dot_product_attention(q, k, v, mask, bias, dropout=dropout)

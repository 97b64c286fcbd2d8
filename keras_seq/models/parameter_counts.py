"""How many parameters a Transformer block has, by a formula."""


def count_block_params(width, feed_forward_dim, attentions=1):
    """A `TransformerBlock` with biases and layer normalisation.

    Args:
        width: D.
        feed_forward_dim: F.
        attentions: 1, or 2 with cross-attention to something of the same width.
    """
    attention = 4 * (width * width + width)  # query, key, value, output
    feed_forward = width * feed_forward_dim + feed_forward_dim + feed_forward_dim * width + width
    normalization = 2 * width
    return attentions * attention + feed_forward + (attentions + 1) * normalization

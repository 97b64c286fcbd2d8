"""Count the parameters of a Transformer block by a formula."""


def count_block_params(dim: int, feed_forward_dim: int, num_attentions: int = 1, use_bias: bool = True) -> int:
    """Return the number of parameters of a `TransformerBlock` with layer normalization.

    Args:
        dim: D, the width of the model.
        feed_forward_dim: F, the width of the feed-forward network's hidden layer.
        num_attentions: 1, or 2 with cross-attention to a context of width D.
        use_bias: Whether dense layers and layer normalizations have a bias.

    Returns:
        The number of parameters.
    """
    attention = 4 * (dim * dim + use_bias * dim)  # query, key, value, output
    feed_forward = 2 * dim * feed_forward_dim + use_bias * (feed_forward_dim + dim)
    normalization = (1 + use_bias) * dim
    return num_attentions * attention + feed_forward + (num_attentions + 1) * normalization

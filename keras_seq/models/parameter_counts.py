"""Count the parameters of a Transformer block by a formula."""


def count_block_params(dim: int, feed_forward_dim: int, num_attentions: int = 1) -> int:
    """Return the number of parameters of a `TransformerBlock` with biases and layer normalization.

    Args:
        dim: D, the width of the model.
        feed_forward_dim: F, the width of the feed-forward network's hidden layer.
        num_attentions: 1, or 2 with cross-attention to a context of width D.

    Returns:
        The number of parameters.
    """
    attention = 4 * (dim * dim + dim)  # query, key, value, output
    feed_forward = dim * feed_forward_dim + feed_forward_dim + feed_forward_dim * dim + dim
    normalization = 2 * dim
    return num_attentions * attention + feed_forward + (num_attentions + 1) * normalization

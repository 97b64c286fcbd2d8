"""Define five sizes of each model family, about three times apart, and count their parameters.

    N   all parameters except those of embedding and head (Kaplan et al., 2020, arXiv:2001.08361, section 1.3)

The sizes of both families agree within 2 %. The FLOPs exclude only the embedding lookup: `keras_seq.models.flops`.
"""

from keras_seq.models import LSTMConfig, TransformerConfig

DEFAULT_RATE_UNITS = 408  # units for which training/config.py has the learning rates of recurrent layers


def transformer_config(width: int, num_layers: int, num_heads: int, context_length: int) -> TransformerConfig:
    """Return a Transformer in the usual proportions.

    Args:
        width: Width D.
        num_layers: Number of blocks.
        num_heads: Number of attention heads H.
        context_length: Context length, in tokens.
    """
    return TransformerConfig(width, num_layers, num_heads, feed_forward_dim=4 * width, context_length=context_length)


def model_configs(family: str, context_length: int, smoke: bool = False) -> list[LSTMConfig | TransformerConfig]:
    """Return the model configs of a family, the smallest first.

    Args:
        family: `"lstm"` or `"transformer"`.
        context_length: Context length of the Transformers, in tokens.
        smoke: Whether to return four tiny sizes.
    """
    if family == "lstm":
        tiny, sizes = ((4, 4), (4, 8), (8, 16), (8, 24)), ((16, 48), (24, 86), (32, 140), (64, 256), (64, 412))
        return [LSTMConfig(embedding_dim, units) for embedding_dim, units in (tiny if smoke else sizes)]
    tiny = ((8, 1, 1), (12, 1, 1), (16, 1, 2), (24, 1, 2))
    sizes = ((32, 1, 1), (40, 2, 2), (64, 2, 2), (96, 3, 3), (128, 4, 4))
    return [transformer_config(*size, context_length) for size in (tiny if smoke else sizes)]


def learning_rate_factor(model_config: LSTMConfig | TransformerConfig) -> float:
    """Return the learning rate of a size relative to the default of its family.

    Narrow LSTMs need a higher learning rate: 0.06 instead of 0.03 (408 units). Transformers of width 32 and 128 need
    the same one. Both were measured on text held out from training.
    """
    return (DEFAULT_RATE_UNITS / model_config.units) ** 0.5 if isinstance(model_config, LSTMConfig) else 1.0


def non_embedding_parameters(model) -> int:
    """Return N of a built model."""
    return model.count_params() - model.embedding.count_params() - model.head.count_params()

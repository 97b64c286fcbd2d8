"""Five sizes of each family, about three times apart, and what they count as.

    N   all weights but those of embedding and output matrix (Kaplan et al., 2020, section 1.3)

The sizes of both families agree within 2 %. The FLOPs leave nothing out but the lookup: `keras_seq.models.flops`.
"""

from keras_seq.models import LSTMConfig, TransformerConfig

MEASURED_AT = 408  # the units for which training/settings.py has the learning rate of recurrent layers


def transformer(width, num_layers, num_heads, context) -> TransformerConfig:
    """A Transformer in the usual proportions."""
    return TransformerConfig(width, num_layers, num_heads, feed_forward_dim=4 * width, context_length=context)


def definitions(family, context, smoke=False) -> list[LSTMConfig | TransformerConfig]:
    """What the models of a family are built from, the smallest first; for `smoke`, four tiny ones."""
    if family == "lstm":
        tiny, sizes = ((4, 4), (4, 8), (8, 16), (8, 24)), ((16, 48), (24, 86), (32, 140), (64, 256), (64, 412))
        return [LSTMConfig(embedding_dim, units) for embedding_dim, units in (tiny if smoke else sizes)]
    tiny = ((8, 1, 1), (12, 1, 1), (16, 1, 2), (24, 1, 2))
    sizes = ((32, 1, 1), (40, 2, 2), (64, 2, 2), (96, 3, 3), (128, 4, 4))
    return [transformer(*size, context) for size in (tiny if smoke else sizes)]


def factor(definition) -> float:
    """What a size's learning rate is, as a factor of its family's default.

    A narrow LSTM wants more: 0.06 where one of 408 units wants 0.03. A Transformer of 32 wants what one of 128 wants.
    (Both on text held out from training; JOURNAL.md.)
    """
    return (MEASURED_AT / definition.units) ** 0.5 if isinstance(definition, LSTMConfig) else 1.0


def non_embedding(model) -> int:
    """N of a built model."""
    return model.count_params() - model.embedding.count_params() - model.head.count_params()

"""BERT (Devlin et al., 2019): `BertModel`, the encoder with its pooler, and `BertForMaskedLM`."""

from keras_seq.layers import TransformerBlock
from keras_seq.models.families.encoders import BertConfig, LogitsBias, masked_lm
from keras_seq.models.families.transformer import ACTIVATIONS
from keras_seq.pretrained.families.gpt2 import ACTIVATION_NAMES
from keras_seq.pretrained.family import Family, Tensor, choice, dropouts, linear, linears, norm, same
from keras_seq.pretrained.tensor_table import fields_of, name_of

IGNORED = (
    "classifier_dropout directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
    "pooler_size_per_head pooler_type"
)
H, B = "bert.encoder.layer.{n}.", "block_{n}/"
ENCODER, MASKED_LM, BOTH = "BertModel", "BertForMaskedLM", "BertForPreTraining"


def describe(model) -> BertConfig:
    """Return the config that builds a model."""
    names = {layer.name: layer for layer in getattr(model, "layers", [])}
    blocks = [layer for layer in names.values() if isinstance(layer, TransformerBlock)]
    if not blocks or not names.keys() >= {"embedding", "positions", "segment_embedding", "embedding_normalization"}:
        raise ValueError(f"{model.name} is not a BertConfig(...).build_model(...)")
    return BertConfig(
        embedding_dim=names["embedding"].output_dim,
        num_layers=len(blocks),
        context_length=names["positions"].length,
        num_segments=names["segment_embedding"].num_segments,
        **fields_of(blocks[0], "num_heads", "feed_forward_dim", "dropout"),
        activation=name_of(blocks[0].activation, ACTIVATIONS),
        epsilon=names["embedding_normalization"].epsilon,
    )


def is_masked_lm(model) -> bool:
    """Return whether a model is a masked language model, and not its encoder."""
    return any(isinstance(layer, LogitsBias) for layer in model.layers)


def build(config, vocabulary_size: int, dtype, architecture: str) -> tuple:
    """Build the models of a class of transformers, of BERT or ModernBERT."""
    encoder = config.build_model(vocabulary_size, dtype=dtype)
    if architecture.endswith("Model"):
        return (encoder,)
    return (masked_lm(encoder), encoder) if architecture == BOTH else (masked_lm(encoder),)


BERT = Family(
    model_type="bert",
    architectures=(ENCODER, MASKED_LM, BOTH),
    config=BertConfig,
    settings=(
        same("hidden_size", "embedding_dim", 768),
        same("num_hidden_layers", "num_layers", 12),
        same("num_attention_heads", "num_heads", 12),
        same("intermediate_size", "feed_forward_dim", 3072),
        same("max_position_embeddings", "context_length", 512),
        same("type_vocab_size", "num_segments", 2),
        choice("hidden_act", "activation", "gelu", {"gelu": "gelu", **ACTIVATION_NAMES}),
        same("layer_norm_eps", "epsilon", 1e-12),
        dropouts(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1),
    ),
    constants={"position_embedding_type": "absolute", "pad_token_id": 0, "tie_word_embeddings": True},
    ignored=frozenset(IGNORED.split()),
    tensors=(
        Tensor("bert.embeddings.word_embeddings.weight", ("embedding/embeddings",)),
        Tensor("bert.embeddings.position_embeddings.weight", ("positions/embeddings",)),
        Tensor("bert.embeddings.token_type_embeddings.weight", ("segment_embedding/embeddings",)),
        *norm("bert.embeddings.LayerNorm", "embedding_normalization"),
        *linears(f"{H}attention.self", f"{B}self_attention", query="query", key="key", value="value"),
        *linear(f"{H}attention.output.dense", f"{B}self_attention/output"),
        *norm(f"{H}attention.output.LayerNorm", f"{B}self_attention_normalization"),
        *linear(f"{H}intermediate.dense", f"{B}feed_forward/hidden"),
        *linear(f"{H}output.dense", f"{B}feed_forward/output"),
        *norm(f"{H}output.LayerNorm", f"{B}feed_forward_normalization"),
        *linear("bert.pooler.dense", "pooler"),
        *linear("cls.predictions.transform.dense", "head"),
        *norm("cls.predictions.transform.LayerNorm", "head_normalization"),
        Tensor("cls.predictions.bias", ("logits/bias",)),
    ),
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    buffers=r"bert\.embeddings\.position_ids",
    renames=(
        (r"LayerNorm\.gamma$", "LayerNorm.weight"),
        (r"LayerNorm\.beta$", "LayerNorm.bias"),
        (r"^(?!bert\.|cls\.)", "bert."),
    ),
    describe=describe,
    architecture_of=lambda model: MASKED_LM if is_masked_lm(model) else ENCODER,
    base_prefix="bert.",
    build=build,
)

"""ModernBERT (Warner et al., 2024): `ModernBertModel` and `ModernBertForMaskedLM`.

Folders of the hub say which blocks attend to all positions by `global_attn_every_n_layers`, and rotations by
`global_rope_theta` and `local_rope_theta`; transformers 5 writes `layer_types` and `rope_parameters`. Both are read and
written. `local_attention` is twice the distance that a block with local attention reaches.
"""

from keras_seq.layers import RotaryPositions
from keras_seq.models.families.modernbert import ModernBertConfig
from keras_seq.models.families.transformer import ACTIVATIONS
from keras_seq.pretrained.families.bert import build, is_masked_lm
from keras_seq.pretrained.families.gpt2 import ACTIVATION_NAMES
from keras_seq.pretrained.families.llama import positions_of, scaling_of
from keras_seq.pretrained.family import Family, Setting, Tensor, choice, dropouts, linear, norm, same
from keras_seq.pretrained.tensor_table import fields_of, name_of

ENCODER, MASKED_LM = "ModernBertModel", "ModernBertForMaskedLM"
IGNORED = (
    "initializer_cutoff_factor classifier_pooling classifier_dropout deterministic_flash_attn reference_compile "
    "sparse_prediction sparse_pred_ignore_index position_embedding_type layer_norm_eps repad_logits_with_grad"
)
GLOBAL, LOCAL = "full_attention", "sliding_attention"
INTERVAL, GLOBAL_BASE, LOCAL_BASE = 3, 160_000.0, 10_000.0  # where config.json does not say it
H, B, F, A = "model.layers.{n}.", "block_{n}/", "feed_forward_{n}/", "block_{n}/self_attention/"


def describe(model) -> ModernBertConfig:
    """Return the config that builds a model."""
    names = {layer.name: layer for layer in getattr(model, "layers", [])}
    num_layers = sum(f"feed_forward_{n}" in names for n in range(len(names)))
    if not num_layers or not names.keys() >= {"embedding", "embedding_normalization", "block_0"}:
        raise ValueError(f"{model.name} is not a ModernBertConfig(...).build_model(...)")
    attentions = [names[f"block_{n}"].layers[0] for n in range(num_layers)]
    local = [attention for attention in attentions if attention.sliding_window is not None]
    feed_forward, last = names["feed_forward_0"].layers[0], names["embedding_normalization"]
    return ModernBertConfig(
        embedding_dim=names["embedding"].output_dim,
        num_layers=num_layers,
        global_attention_interval=_interval([attention not in local for attention in attentions]),
        **fields_of(attentions[0], "num_heads", "positions"),
        **fields_of(feed_forward, "feed_forward_dim", "dropout"),
        **fields_of(names["token_id_check"], "context_length", "pad_token_id"),
        activation=name_of(feed_forward.activation, ACTIVATIONS),
        epsilon=last.epsilon,
        attention_bias=attentions[0].use_bias,
        feed_forward_bias=feed_forward.use_bias,
        normalization_bias=last.center,
        **({"sliding_window": local[0].sliding_window, "local_positions": local[0].positions} if local else {}),
    )


def _interval(is_global: list[bool]) -> int:
    """Return the number of the second block with global attention, or that of all blocks."""
    return next((n for n in range(1, len(is_global)) if is_global[n]), len(is_global))


def _kinds(num_layers, interval):
    return [LOCAL if n % interval else GLOBAL for n in range(num_layers)]


def _read_attention(values):
    """Return which blocks are global, what the others see, and the rotations of both."""
    num_layers, interval = values["num_hidden_layers"], values["global_attn_every_n_layers"]
    kinds = _kinds(num_layers, interval) if values["layer_types"] is None else values["layer_types"]
    implied = _interval([kind == GLOBAL for kind in kinds]) if kinds and isinstance(kinds, list) else 1
    if kinds != _kinds(num_layers, implied):
        raise ValueError(
            f"layer_types={kinds!r}; expected num_hidden_layers={num_layers} of them, the first and every n-th after "
            f"it {GLOBAL!r}, the others {LOCAL!r}"
        )
    if interval != INTERVAL and kinds != _kinds(num_layers, interval):
        raise ValueError(f"global_attn_every_n_layers={interval}; expected {implied}, as layer_types says")
    fields = {
        "global_attention_interval": implied,
        "positions": _positions(values, GLOBAL, "global_rope_theta", GLOBAL_BASE),
    }
    local = _positions(values, LOCAL, "local_rope_theta", LOCAL_BASE)
    if LOCAL not in kinds:
        return fields
    return {**fields, "sliding_window": values["local_attention"] // 2 + 1, "local_positions": local}


def _positions(values, kind, key, default) -> RotaryPositions:
    """Return the rotations of one kind of blocks, whose base may be said in two places."""
    rotations, name = values["rope_parameters"] or {}, f"rope_parameters: {kind}"
    for other in rotations.keys() - {GLOBAL, LOCAL}:
        raise ValueError(f"rope_parameters: {other}={rotations[other]!r}; expected {GLOBAL!r} and {LOCAL!r} only")
    rope = rotations.get(kind)
    if not isinstance(rope, dict | None):
        raise ValueError(f"{name}={rope!r}; expected an object, or null")
    rope = {"rope_theta": values[key], "rope_type": "default"} | (rope or {})
    positions = positions_of(rope, name)
    if values[key] not in (default, rope["rope_theta"]):
        raise ValueError(f"{key}={values[key]!r}, and {rope['rope_theta']!r} in {name}; expected the same")
    return positions


def _write_attention(config):
    rotations = {
        kind: scaling_of(positions) | {"rope_type": positions.scaling or "default", "rope_theta": positions.base}
        for kind, positions in ((GLOBAL, config.positions), (LOCAL, config.local_positions))
    }
    return {
        "global_attn_every_n_layers": config.global_attention_interval,
        "layer_types": _kinds(config.num_layers, config.global_attention_interval),
        "local_attention": max(2 * (config.sliding_window - 1), 1),
        "global_rope_theta": config.positions.base,
        "local_rope_theta": config.local_positions.base,
        "rope_parameters": rotations,
    }


MODERNBERT = Family(
    model_type="modernbert",
    architectures=(ENCODER, MASKED_LM),
    config=ModernBertConfig,
    settings=(
        same("hidden_size", "embedding_dim", 768),
        same("num_hidden_layers", "num_layers", 22),
        same("num_attention_heads", "num_heads", 12),
        same("intermediate_size", "feed_forward_dim", 1152),
        same("max_position_embeddings", "context_length", 8192),
        Setting(
            {
                **{"global_attn_every_n_layers": INTERVAL, "layer_types": None, "local_attention": 128},
                **{"global_rope_theta": GLOBAL_BASE, "local_rope_theta": LOCAL_BASE, "rope_parameters": None},
            },
            _read_attention,
            _write_attention,
        ),
        choice("hidden_activation", "activation", "gelu", ACTIVATION_NAMES),
        same("norm_eps", "epsilon", 1e-5),
        same("norm_bias", "normalization_bias", False),
        same("attention_bias", "attention_bias", False),
        same("mlp_bias", "feed_forward_bias", False),
        same("pad_token_id", "pad_token_id", 50_283),
        dropouts(embedding_dropout=0.0, attention_dropout=0.0, mlp_dropout=0.0),
    ),
    constants={
        **{"rope_scaling": None, "tie_word_embeddings": True},
        **{"classifier_activation": "gelu", "classifier_bias": False, "decoder_bias": True},  # of the head
    },
    ignored=frozenset(IGNORED.split()),
    tensors=(
        Tensor("model.embeddings.tok_embeddings.weight", ("embedding/embeddings",)),
        *norm("model.embeddings.norm", "embedding_normalization"),
        *norm(f"{H}attn_norm", f"{B}normalization"),
        *linear(f"{H}attn.Wqkv", f"{A}query", f"{A}key", f"{A}value"),
        *linear(f"{H}attn.Wo", f"{A}output"),
        *norm(f"{H}mlp_norm", f"{F}normalization"),
        *linear(f"{H}mlp.Wi", f"{F}feed_forward/gate", f"{F}feed_forward/hidden"),
        *linear(f"{H}mlp.Wo", f"{F}feed_forward/output"),
        *norm("model.final_norm", "normalization"),
        *linear("head.dense", "head"),
        *norm("head.norm", "head_normalization"),
        Tensor("decoder.bias", ("logits/bias",)),
    ),
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    buffers=r"model\.rotary_emb\..*|model\.layers\.\d+\.attn\.rotary_emb\.inv_freq",
    renames=((r"^(?!model\.|head\.|decoder\.)", "model."),),
    describe=describe,
    architecture_of=lambda model: MASKED_LM if is_masked_lm(model) else ENCODER,
    eos_token_id=50_282,
    base_prefix="model.",
    build=build,
)

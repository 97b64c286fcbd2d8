"""The Llama family (Touvron et al., 2023): Llama, Mistral, Qwen2 and Qwen3 differ in biases, norms and windows.

A config.json says rotary positions as `rope_theta` and `rope_scaling`, or since transformers 5 as `rope_parameters`.
"""

import dataclasses
import math
import re

from keras_seq import checks
from keras_seq.layers import RotaryPositions
from keras_seq.models.families.transformer import LlamaConfig
from keras_seq.pretrained.family import Family, Setting, Tensor, choice, dropouts, fixed, linear, linears, norm, same
from keras_seq.pretrained.tensor_table import blocks_of, fields_of

BASE = 10_000.0  # where config.json does not say it
ROPE = {"rope_theta": BASE, "rope_scaling": None, "rope_parameters": None}
KEYS = {  # of each rope_type, and the arguments of RotaryPositions that say the same
    "default": {},
    "linear": {"factor": "scaling_factor"},
    "yarn": {
        "factor": "scaling_factor",
        "original_max_position_embeddings": "original_context_length",
        "beta_slow": "low_turns",
        "beta_fast": "high_turns",
    },
    "llama3": {
        "factor": "scaling_factor",
        "original_max_position_embeddings": "original_context_length",
        "low_freq_factor": "low_turns",
        "high_freq_factor": "high_turns",
    },
}
OPTIONAL = {"yarn": {"beta_slow", "beta_fast"}}  # by rope_type
H, B, A = "model.layers.{n}.", "block_{n}/", "block_{n}/self_attention"
GATED = {"gate_proj": "gate", "up_proj": "hidden", "down_proj": "output"}  # a feed-forward layer's matrices


def positions_of(rope: dict, name: str, **arguments) -> RotaryPositions:
    """Return the rotary positions of an object with `rope_theta` and `rope_type`, by the name of the object's key."""
    rope = dict(rope)
    kind = checks.one_of(f"{name}: rope_type", rope.pop("rope_type"), KEYS)
    base, amplitude = rope.pop("rope_theta"), rope.pop("attention_factor", None) if kind == "yarn" else None
    for key in KEYS[kind]:
        if rope.get(key) is None and key not in OPTIONAL.get(kind, ()):
            raise ValueError(f"{name}: {key} is missing; expected a number for rope_type={kind!r}")
    for key, value in rope.items():
        if key not in KEYS[kind]:
            raise ValueError(f"{name}: {key}={value!r} is unknown for rope_type={kind!r}")
        if value is not None:
            check = checks.positive_integer if key == "original_max_position_embeddings" else checks.positive_number
            check(f"{name}: {key}", value)
    if amplitude is not None:
        checks.positive_number(f"{name}: attention_factor", amplitude)
        if not math.isclose(amplitude, 0.1 * math.log(rope["factor"]) + 1):
            raise ValueError(f"{name}: attention_factor={amplitude}; expected 0.1 ln(factor) + 1")
    arguments |= {argument: rope[key] for key, argument in KEYS[kind].items() if rope.get(key) is not None}
    scaling = None if kind == "default" else kind
    try:
        return RotaryPositions(base=float(base), scaling=scaling, **arguments)
    except ValueError as error:
        keys = {"base": "rope_theta"} | {argument: key for key, argument in KEYS[kind].items()}
        raise ValueError(re.sub(r"\b\w+\b(?==)", lambda match: keys.get(match[0], match[0]), str(error))) from None


def take_share(rope: dict, name: str, values: dict, default: float) -> float:
    """Take from `rope_values` the share of a head that is rotated, or return that of config.json itself."""
    outer = values["partial_rotary_factor"]
    factor = rope.pop("partial_rotary_factor", outer)
    if outer not in (default, factor):
        raise ValueError(f"partial_rotary_factor={outer!r}, and {factor!r} in {name}; expected the same")
    return checks.positive_number(f"{name}: partial_rotary_factor", factor)


def rope_values(values: dict) -> tuple[dict, str]:
    """Return what config.json says of rotations, `rope_theta` and `rope_type` included, and the key that says it."""
    older, newer = (values[key] or {} for key in ("rope_scaling", "rope_parameters"))
    for key in older.keys() & newer.keys():
        if older[key] != newer[key]:
            raise ValueError(
                f"rope_scaling has {key}={older[key]!r}, rope_parameters {newer[key]!r}; expected the same"
            )
    rope = older | newer
    kinds = [rope.pop(key) for key in ("rope_type", "type") if key in rope]  # two spellings, maybe side by side
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        raise ValueError(f"rope_type={kinds[0]!r}, type={kinds[1]!r}; expected the same")
    name = "rope_scaling" if older and not newer else "rope_parameters"
    rope = {"rope_theta": values["rope_theta"], "rope_type": kinds[0] if kinds else "default"} | rope
    checks.positive_number(f"{name}: rope_theta", rope["rope_theta"])
    if values["rope_theta"] not in (BASE, rope["rope_theta"]):
        raise ValueError(
            f"rope_theta={values['rope_theta']!r}, and {rope['rope_theta']!r} in {name}; expected the same"
        )
    return rope, name


def scaling_of(positions: RotaryPositions) -> dict:
    """Return the keys that say how rotations are scaled."""
    keys = KEYS.get(positions.scaling, {})
    return {"rope_type": positions.scaling, **{key: getattr(positions, name) for key, name in keys.items()}}


def write_rotary(config) -> dict:
    """Return the keys that say rotary positions."""
    positions = config.positions
    # the older keys, which every version of transformers and other engines read
    scaling = None if positions.scaling is None else scaling_of(positions)
    return {"rope_theta": positions.base, "rope_scaling": scaling}


def describe(model) -> LlamaConfig:
    """Return the config that builds a model."""
    blocks, others = blocks_of(model)
    block, last = blocks[0], blocks[-1]
    if not isinstance(block.positions, RotaryPositions):
        raise ValueError(f"{block.name} has positions={block.positions}; expected RotaryPositions")
    return LlamaConfig(
        embedding_dim=model.embedding.output_dim,
        num_layers=len(blocks),
        num_key_value_heads=block.num_key_value_heads or block.num_heads,
        context_length=model.context_length,
        epsilon=others[-1].epsilon,
        **fields_of(block, "num_heads", "key_dim", "positions", "feed_forward_dim", "activation", "dropout"),
        **fields_of(block, "attention_bias", "attention_output_bias", "feed_forward_bias"),
        **fields_of(block, "use_qk_norm", "use_output_gate", "use_sinks"),
        sliding_window=last.sliding_window,
        full_attention_layers=sum(block.sliding_window is None for block in blocks) if last.sliding_window else 0,
        tie_embeddings=model.head is None,
    )


def key_value_heads(default: int | None) -> Setting:
    """Return the setting of `num_key_value_heads`, where null stands for one for each head of queries."""

    def read(values):
        heads = values["num_key_value_heads"]
        return {"num_key_value_heads": values["num_attention_heads"] if heads is None else heads}

    write = lambda config: {"num_key_value_heads": config.num_key_value_heads}  # noqa: E731
    return Setting({"num_key_value_heads": default}, read, write)


def _head_dim(default):
    """Return the setting of `head_dim`; a field of None follows from the other sizes."""

    def read(values):
        width = values["head_dim"]
        return {"key_dim": None if width == values["hidden_size"] / values["num_attention_heads"] else width}

    write = lambda config: {"head_dim": config.key_dim or config.embedding_dim // config.num_heads}  # noqa: E731
    return Setting({"head_dim": default}, read, write, {"key_dim": "head_dim"})


def _read_windows(values):
    """Return Qwen's windows: off, or those of the layers from `max_window_layers` on."""
    num_layers, window, first = values["num_hidden_layers"], values["sliding_window"], values["max_window_layers"]
    full = min(first, num_layers) if values["use_sliding_window"] and window is not None else num_layers
    expected = ["full_attention" if n < full else "sliding_attention" for n in range(num_layers)]
    if values["layer_types"] not in (None, expected):
        raise ValueError(
            f"layer_types={values['layer_types']!r}; expected num_hidden_layers={num_layers} of them, the first {full} "
            "'full_attention' and the others 'sliding_attention'"
        )
    if full >= num_layers:
        return {"sliding_window": None, "full_attention_layers": 0}
    return {"sliding_window": window, "full_attention_layers": full}


def _write_windows(config):
    full = config.num_layers if config.sliding_window is None else config.full_attention_layers
    return {
        "use_sliding_window": config.sliding_window is not None,
        "sliding_window": config.sliding_window,
        "max_window_layers": full,
        "layer_types": ["full_attention" if n < full else "sliding_attention" for n in range(config.num_layers)],
    }


_SIZES = (
    same("hidden_size", "embedding_dim", 4096),
    same("num_hidden_layers", "num_layers", 32),
    same("num_attention_heads", "num_heads", 32),
)
_SHARED = (
    choice("hidden_act", "activation", "silu", {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"}),
    same("rms_norm_eps", "epsilon", 1e-6),
    same("tie_word_embeddings", "tie_embeddings", False),
    dropouts(attention_dropout=0.0),
    Setting(ROPE, lambda values: {"positions": positions_of(*rope_values(values))}, write_rotary),
)
_ATTENTION_BIAS = Setting(
    {"attention_bias": False},
    lambda values: dict.fromkeys(("attention_bias", "attention_output_bias"), values["attention_bias"]),
    lambda config: {"attention_bias": config.attention_bias},
)
LLAMA = Family(
    model_type="llama",
    architectures=("LlamaForCausalLM", "LlamaModel"),
    config=LlamaConfig,
    settings=(
        *_SIZES,
        same("intermediate_size", "feed_forward_dim", 11_008),
        same("max_position_embeddings", "context_length", 2048),
        *_SHARED,
        key_value_heads(None),
        _head_dim(None),
        _ATTENTION_BIAS,
        same("mlp_bias", "feed_forward_bias", False),
    ),
    constants={},
    ignored=frozenset({"pretraining_tp"}),
    tensors=(
        Tensor("model.embed_tokens.weight", ("embedding/embeddings",)),
        *norm(f"{H}input_layernorm", f"{B}self_attention_normalization"),
        *linears(f"{H}self_attn", A, q_proj="query", k_proj="key", v_proj="value", o_proj="output"),
        *norm(f"{H}self_attn.q_norm", f"{A}/query_normalization"),
        *norm(f"{H}self_attn.k_norm", f"{A}/key_normalization"),
        *norm(f"{H}post_attention_layernorm", f"{B}feed_forward_normalization"),
        *linears(f"{H}mlp", f"{B}feed_forward", **GATED),
        *norm("model.norm", "normalization"),
        *linear("lm_head", "head"),
    ),
    tied={"lm_head.weight": "model.embed_tokens.weight"},
    buffers=r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    renames=((r"^(?!model\.|lm_head\.)", "model."),),
    describe=describe,
)


def _variant(model_type, class_name, *settings, feed_forward_dim, context_length):
    """Return a family that differs from Llama in these defaults and further settings."""
    sizes = (
        same("intermediate_size", "feed_forward_dim", feed_forward_dim),
        same("max_position_embeddings", "context_length", context_length),
    )
    return dataclasses.replace(
        LLAMA,
        model_type=model_type,
        architectures=(f"{class_name}ForCausalLM", f"{class_name}Model"),
        settings=(*_SIZES, *_SHARED, *sizes, *settings),
        ignored=frozenset(),
    )


MISTRAL = _variant(
    "mistral",
    "Mistral",
    same("sliding_window", "sliding_window", 4096),
    key_value_heads(8),
    _head_dim(None),
    feed_forward_dim=14_336,
    context_length=4096 * 32,
)
_QWEN_WINDOWS = Setting(
    {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "layer_types": None},
    _read_windows,
    _write_windows,
)
QWEN2 = _variant(
    "qwen2",
    "Qwen2",
    _QWEN_WINDOWS,
    key_value_heads(32),
    fixed(attention_bias=True),
    feed_forward_dim=22_016,
    context_length=32_768,
)
QWEN3 = _variant(
    "qwen3",
    "Qwen3",
    _QWEN_WINDOWS,
    key_value_heads(32),
    _head_dim(128),
    _ATTENTION_BIAS,
    fixed(use_qk_norm=True),
    feed_forward_dim=22_016,
    context_length=32_768,
)

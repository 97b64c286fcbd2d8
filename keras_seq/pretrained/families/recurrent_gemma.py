"""RecurrentGemma (Botev et al., 2024): `RecurrentGemmaForCausalLM`, Griffin's RG-LRU and local attention in turns."""

from keras_seq.layers import GriffinRecurrentBlock, TransformerBlock
from keras_seq.models.families.hybrid import RecurrentGemmaConfig
from keras_seq.pretrained.families.llama import GATED, ROPE, key_value_heads, positions_of, rope_values, take_share
from keras_seq.pretrained.family import CONVOLUTION, Family, Layout, Setting, Tensor, dropouts, linears, norm, same
from keras_seq.pretrained.tensor_table import blocks_of, fields_of

H, B, F, A = "model.layers.{n}.", "block_{n}/", "feed_forward_{n}/", "block_{n}/self_attention"
KINDS = {"recurrent": "r", "attention": "a"}
SHARE = 0.5  # of a head that is rotated, where config.json does not say it
BLOCKS = Layout(  # [H, W, W]; ours has the H matrices side by side, [W, H W]
    lambda a: a.transpose(1, 0, 2).reshape(a.shape[1], -1),
    lambda a: a.reshape(a.shape[0], -1, a.shape[0]).transpose(1, 0, 2),
)


def describe_hybrid(model, mixer_class: type, letter: str) -> tuple:
    """Return an attention block and a mixer of a model, or None, and the fields that all hybrid configs have."""
    blocks, others = blocks_of(model)
    kinds, attention, mixer = "", None, None
    for block in blocks:
        if isinstance(block, TransformerBlock):
            kinds, attention = f"{kinds}a", block
        elif isinstance(block.layers[0], mixer_class):
            kinds, mixer = f"{kinds}{letter}", block.layers[0]
    if attention is None and mixer is None:
        raise ValueError(f"{model.name} has neither attention nor {mixer_class.__name__}")
    fields = {
        "embedding_dim": model.embedding.output_dim,
        "num_layers": len(kinds),
        "pattern": period(kinds),
        "feed_forward_dim": (attention or blocks[1].layers[0]).feed_forward_dim,
        "epsilon": others[-1].epsilon,
        "dropout": blocks[0].dropout,
    }
    return attention, mixer, fields


def describe(model) -> RecurrentGemmaConfig:
    """Return the config that builds a model."""
    attention, recurrent, fields = describe_hybrid(model, GriffinRecurrentBlock, "r")
    if attention is not None:
        fields |= fields_of(attention, "sliding_window", "positions", "attention_bias")
        fields["num_key_value_heads"] = attention.num_key_value_heads or attention.num_heads
    if recurrent is not None:
        width = recurrent.num_heads * recurrent.head_dim
        fields["lru_width"] = None if width == model.embedding.output_dim else width
        fields["kernel_size"] = recurrent.kernel_size
    num_heads, logit_soft_cap = (attention or recurrent).num_heads, model.embedding.logit_soft_cap
    return RecurrentGemmaConfig(**fields, num_heads=num_heads, logit_soft_cap=logit_soft_cap)


def period(kinds: str) -> str:
    """Return the shortest pattern that gives these kinds if it is repeated."""
    return next(kinds[:n] for n in range(1, len(kinds) + 1) if kinds.startswith(kinds[n:]))


def _read_kinds(values):
    types, num_layers = values["block_types"], values["num_hidden_layers"]
    if not isinstance(types, list) or not types or not all(isinstance(t, str) and t in KINDS for t in types):
        raise ValueError(f"block_types={types!r}; expected a list of {' and '.join(map(repr, KINDS))}")
    kinds = "".join(KINDS[kind] for kind in types[:num_layers])
    num_layers = min(num_layers, 100 * len(kinds))  # as often as transformers repeats them
    return {"num_layers": num_layers, "pattern": period((kinds * num_layers)[:num_layers])}


def write_kinds(num_layers: int, key: str, names: dict[str, str], kinds: str) -> dict:
    """Return the keys that say the kinds of the blocks, by a dictionary from their names to letters."""
    names = {kind: name for name, kind in names.items()}
    keys = {"num_hidden_layers": num_layers, key: [names[kind] for kind in kinds]}
    return keys if "a" in kinds else {**keys, "use_cache": False}  # transformers' cache needs attention


def _check_head_dim(values):
    if values["head_dim"] not in (None, values["hidden_size"] // values["num_attention_heads"]):
        raise ValueError(f"head_dim={values['head_dim']}; expected hidden_size / num_attention_heads")
    return {}


def _read_rotation(values):
    rope, name = rope_values(values)
    if rope["rope_type"] != "default":
        raise ValueError(f"{name}={values[name]!r}; expected no scaling")
    share = take_share(rope, name, values, SHARE)
    return {"positions": positions_of(rope, name, partial_rotary_factor=share)}


def _write_rotation(config):
    positions = config.positions
    return {"rope_theta": positions.base, "partial_rotary_factor": positions.partial_rotary_factor}


def _gate(name, path):
    """Return the tensors of a gate of the RG-LRU: H matrices and biases."""
    kernel = f"{path}/kernel"
    biases = lambda shape_of: Layout(lambda a: a.reshape(-1), lambda a: a.reshape(-1, shape_of(kernel)[0]))  # noqa: E731
    return Tensor(f"{name}_weight", (kernel,), BLOCKS), Tensor(f"{name}_bias", (f"{path}/bias",), biases)


RECURRENT_GEMMA = Family(
    model_type="recurrent_gemma",
    architectures=("RecurrentGemmaForCausalLM", "RecurrentGemmaModel"),
    config=RecurrentGemmaConfig,
    settings=(
        Setting(
            {"num_hidden_layers": 26, "block_types": ["recurrent", "recurrent", "attention"]},
            _read_kinds,
            lambda config: write_kinds(config.num_layers, "block_types", KINDS, config.pattern),
            {"num_layers": "num_hidden_layers", "pattern": "block_types"},
        ),
        same("hidden_size", "embedding_dim", 2560),
        same("num_attention_heads", "num_heads", 10),
        key_value_heads(None),
        Setting(
            {"head_dim": None}, _check_head_dim, lambda config: {"head_dim": config.embedding_dim // config.num_heads}
        ),
        Setting(
            {"lru_width": None},
            lambda values: {"lru_width": None if values["lru_width"] == values["hidden_size"] else values["lru_width"]},
            lambda config: {"lru_width": config.lru_width or config.embedding_dim},
        ),
        Setting(
            {"intermediate_size": 7680},
            lambda values: {"feed_forward_dim": values["intermediate_size"] // 2},  # transformers halves it, too
            lambda config: {"intermediate_size": 2 * config.feed_forward_dim},
            {"feed_forward_dim": "intermediate_size"},
        ),
        same("conv1d_width", "kernel_size", 4),
        same("attention_window_size", "sliding_window", 2048),
        same("attention_bias", "attention_bias", False),
        same("logits_soft_cap", "logit_soft_cap", 30.0),
        same("rms_norm_eps", "epsilon", 1e-6),
        Setting(ROPE | {"partial_rotary_factor": SHARE}, _read_rotation, _write_rotation),
        dropouts(attention_dropout=0.0),
    ),
    constants={
        "hidden_activation": "gelu_pytorch_tanh",
        "embeddings_scale_by_sqrt_dim": True,
        "tie_word_embeddings": True,
    },
    ignored=frozenset({"w_init_variance_scale", "final_w_init_variance_scale", "layer_types", "_block_types"}),
    tensors=(
        Tensor("model.embed_tokens.weight", ("embedding/embeddings",)),
        *norm(f"{H}temporal_pre_norm", f"{B}normalization"),
        *linears(f"{H}temporal_block", f"{B}hawk", linear_x="input", linear_y="gate", linear_out="output"),
        Tensor(f"{H}temporal_block.conv_1d.weight", (f"{B}hawk/convolution/kernel",), CONVOLUTION),
        Tensor(f"{H}temporal_block.conv_1d.bias", (f"{B}hawk/convolution/bias",)),
        Tensor(f"{H}temporal_block.rg_lru.recurrent_param", (f"{B}hawk/rg_lru/decay",)),
        *_gate(f"{H}temporal_block.rg_lru.input_gate", f"{B}hawk/rg_lru/input_gate"),
        *_gate(f"{H}temporal_block.rg_lru.recurrent_gate", f"{B}hawk/rg_lru/recurrence_gate"),
        *norm(f"{H}channel_pre_norm", f"{F}normalization"),
        *linears(f"{H}mlp_block", f"{F}feed_forward", **GATED),
        *norm(f"{H}temporal_pre_norm", f"{B}self_attention_normalization"),
        *linears(f"{H}temporal_block", A, q_proj="query", k_proj="key", v_proj="value", o_proj="output"),
        *norm(f"{H}channel_pre_norm", f"{B}feed_forward_normalization"),
        *linears(f"{H}mlp_block", f"{B}feed_forward", **GATED),
        *norm("model.final_norm", "normalization"),
    ),
    tied={"lm_head.weight": "model.embed_tokens.weight"},
    buffers=r"model\.normalizer|model\.layers\.\d+\.temporal_block\.rotary_emb\.inv_freq",
    renames=((r"^(?!model\.|lm_head\.)", "model."),),
    describe=describe,
)

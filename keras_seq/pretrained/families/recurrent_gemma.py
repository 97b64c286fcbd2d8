"""RecurrentGemma (Botev et al., 2024): `RecurrentGemmaForCausalLM`, Griffin's RG-LRU and local attention in turns."""

from keras_seq.layers import GriffinRecurrentBlock, TransformerBlock
from keras_seq.models.families.hybrid import RecurrentGemmaConfig
from keras_seq.pretrained.families.llama import BASE, positions_of, rope_values, take_share
from keras_seq.pretrained.family import (
    CONVOLUTION,
    Family,
    Layout,
    Setting,
    Tensor,
    dropouts,
    linear,
    normalization,
    same,
)
from keras_seq.pretrained.tensor_table import blocks_of

H, B, F = "model.layers.{n}.", "block_{n}/", "feed_forward_{n}/"
KINDS = {"recurrent": "r", "attention": "a"}
SHARE = 0.5  # of a head that is rotated, where config.json does not say it
BLOCKS = Layout(  # [H, W, W]; ours has the H matrices side by side, [W, H W]
    lambda a: a.transpose(1, 0, 2).reshape(a.shape[1], -1),
    lambda a: a.reshape(a.shape[0], -1, a.shape[0]).transpose(1, 0, 2),
)


def kinds_of(model, mixer_class: type, letter: str) -> tuple:
    """Return the kinds of the blocks, an attention block and a mixer or None, all blocks, and the other layers."""
    blocks, others = blocks_of(model)
    kinds, attention, mixer = "", None, None
    for block in blocks:
        if isinstance(block, TransformerBlock):
            kinds, attention = f"{kinds}a", block
        elif isinstance(block.layers[0], mixer_class):
            kinds, mixer = f"{kinds}{letter}", block.layers[0]
    if attention is None and mixer is None:
        raise ValueError(f"{model.name} has neither attention nor {mixer_class.__name__}")
    return kinds, attention, mixer, blocks, others


def describe(model) -> RecurrentGemmaConfig:
    """Return the config that builds a model."""
    kinds, attention, recurrent, blocks, others = kinds_of(model, GriffinRecurrentBlock, "r")
    fields = {}
    if attention is not None:
        fields = {
            "num_key_value_heads": attention.num_key_value_heads or attention.num_heads,
            "sliding_window": attention.sliding_window,
            "positions": attention.positions,
            "attention_bias": attention.attention_bias,
        }
    if recurrent is not None:
        width = recurrent.num_heads * recurrent.head_dim
        fields["lru_width"] = None if width == model.embedding.output_dim else width
        fields["kernel_size"] = recurrent.kernel_size
    return RecurrentGemmaConfig(
        embedding_dim=model.embedding.output_dim,
        num_layers=len(kinds),
        pattern=period(kinds),
        num_heads=(attention or recurrent).num_heads,
        feed_forward_dim=(attention or blocks[1].layers[0]).feed_forward_dim,
        logit_soft_cap=model.embedding.logit_soft_cap,
        epsilon=others[-1].epsilon,
        dropout=blocks[0].dropout,
        **fields,
    )


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


def _write_kinds(config):
    names = {kind: name for name, kind in KINDS.items()}
    kinds = {"num_hidden_layers": config.num_layers, "block_types": [names[kind] for kind in config.pattern]}
    return kinds if "a" in config.pattern else {**kinds, "use_cache": False}  # transformers' cache needs attention


def _read_widths(values):
    width, num_heads = values["hidden_size"], values["num_attention_heads"]
    if values["head_dim"] not in (None, width // num_heads):
        raise ValueError(f"head_dim={values['head_dim']}; expected hidden_size / num_attention_heads")
    heads, units = values["num_key_value_heads"], values["lru_width"]
    return {
        "embedding_dim": width,
        "num_heads": num_heads,
        "num_key_value_heads": num_heads if heads is None else heads,
        "lru_width": None if units == width else units,
        "feed_forward_dim": values["intermediate_size"] // 2,  # transformers halves it, too
    }


def _write_widths(config):
    return {
        "hidden_size": config.embedding_dim,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.embedding_dim // config.num_heads,
        "lru_width": config.lru_width or config.embedding_dim,
        "intermediate_size": 2 * config.feed_forward_dim,
    }


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
            _write_kinds,
            {"num_layers": "num_hidden_layers", "pattern": "block_types"},
        ),
        Setting(
            {
                **{"hidden_size": 2560, "num_attention_heads": 10, "num_key_value_heads": None, "head_dim": None},
                **{"lru_width": None, "intermediate_size": 7680},
            },
            _read_widths,
            _write_widths,
            {
                "embedding_dim": "hidden_size",
                "num_heads": "num_attention_heads",
                "feed_forward_dim": "intermediate_size",
            },
        ),
        same("conv1d_width", "kernel_size", 4),
        same("attention_window_size", "sliding_window", 2048),
        same("attention_bias", "attention_bias", False),
        same("logits_soft_cap", "logit_soft_cap", 30.0),
        same("rms_norm_eps", "epsilon", 1e-6),
        Setting(
            {"rope_theta": BASE, "rope_scaling": None, "rope_parameters": None, "partial_rotary_factor": SHARE},
            _read_rotation,
            _write_rotation,
        ),
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
        *normalization(f"{H}temporal_pre_norm", f"{B}normalization"),
        *linear(f"{H}temporal_block.linear_x", f"{B}hawk/input"),
        *linear(f"{H}temporal_block.linear_y", f"{B}hawk/gate"),
        *linear(f"{H}temporal_block.linear_out", f"{B}hawk/output"),
        Tensor(f"{H}temporal_block.conv_1d.weight", (f"{B}hawk/convolution/kernel",), CONVOLUTION),
        Tensor(f"{H}temporal_block.conv_1d.bias", (f"{B}hawk/convolution/bias",)),
        Tensor(f"{H}temporal_block.rg_lru.recurrent_param", (f"{B}hawk/rg_lru/decay",)),
        *_gate(f"{H}temporal_block.rg_lru.input_gate", f"{B}hawk/rg_lru/input_gate"),
        *_gate(f"{H}temporal_block.rg_lru.recurrent_gate", f"{B}hawk/rg_lru/recurrence_gate"),
        *normalization(f"{H}channel_pre_norm", f"{F}normalization"),
        *linear(f"{H}mlp_block.gate_proj", f"{F}feed_forward/gate"),
        *linear(f"{H}mlp_block.up_proj", f"{F}feed_forward/hidden"),
        *linear(f"{H}mlp_block.down_proj", f"{F}feed_forward/output"),
        *normalization(f"{H}temporal_pre_norm", f"{B}self_attention_normalization"),
        *linear(f"{H}temporal_block.q_proj", f"{B}self_attention/query"),
        *linear(f"{H}temporal_block.k_proj", f"{B}self_attention/key"),
        *linear(f"{H}temporal_block.v_proj", f"{B}self_attention/value"),
        *linear(f"{H}temporal_block.o_proj", f"{B}self_attention/output"),
        *normalization(f"{H}channel_pre_norm", f"{B}feed_forward_normalization"),
        *linear(f"{H}mlp_block.gate_proj", f"{B}feed_forward/gate"),
        *linear(f"{H}mlp_block.up_proj", f"{B}feed_forward/hidden"),
        *linear(f"{H}mlp_block.down_proj", f"{B}feed_forward/output"),
        *normalization("model.final_norm", "normalization"),
    ),
    tied={"lm_head.weight": "model.embed_tokens.weight"},
    buffers=r"model\.normalizer|model\.layers\.\d+\.temporal_block\.rotary_emb\.inv_freq",
    renames=((r"^(?!model\.|lm_head\.)", "model."),),
    describe=describe,
)

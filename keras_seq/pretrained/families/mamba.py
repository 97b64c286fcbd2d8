"""Mamba (Gu & Dao, 2023), `MambaForCausalLM`, and Mamba-2 (Dao & Gu, 2024), `Mamba2ForCausalLM`."""

import math

from keras_seq import checks
from keras_seq.layers import Mamba2, SelectiveStateSpace
from keras_seq.models.families.linear import Mamba2Config, MambaConfig
from keras_seq.pretrained.family import CONVOLUTION, Family, Setting, Tensor, linear, norm, same
from keras_seq.pretrained.tensor_table import blocks_of, fields_of

IGNORED = (
    "residual_in_fp32 time_step_scale time_step_min time_step_max time_step_init_scheme time_step_floor "
    "rescale_prenorm_residual use_mambapy use_associative_scan d_inner d_model n_layer fused_add_norm "
    "pad_vocab_size_multiple ssm_cfg layer_types"
)
NAMES = {  # what is stored once, and how older files call the tensors
    "tied": {"lm_head.weight": "backbone.embeddings.weight"},
    "buffers": r"(?!)",
    "renames": (
        (r"^backbone\.embedding\.weight$", "backbone.embeddings.weight"),
        (r"^(?!backbone\.|lm_head\.)", "backbone."),
    ),
}
CONSTANTS = {"use_conv_bias": True, "hidden_act": "silu", "rms_norm": True}
H, B, B2 = "backbone.layers.{n}.", "block_{n}/mamba/", "block_{n}/mamba2/"


def _describe(model, kind):
    """Return the mixer of the first block, and the fields that both configs have."""
    blocks, others = blocks_of(model)
    layer = blocks[0].layers[0]
    if not isinstance(layer, kind):
        raise ValueError(f"{layer.name} is not a {kind.__name__}")
    return layer, {
        "embedding_dim": model.embedding.output_dim,
        "num_layers": len(blocks),
        **fields_of(layer, "state_dim", "kernel_size", "use_bias"),
        "epsilon": others[-1].epsilon,
        "tie_embeddings": model.head is None,
        "dropout": blocks[0].dropout,
    }


def describe_mamba(model) -> MambaConfig:
    """Return the config that builds a model."""
    layer, fields = _describe(model, SelectiveStateSpace)
    rank = None if layer.dt_rank == -(-fields["embedding_dim"] // 16) else layer.dt_rank
    return MambaConfig(**fields, expand=layer.expand, dt_rank=rank)


def describe_mamba2(model) -> Mamba2Config:
    """Return the config that builds a model."""
    layer, fields = _describe(model, Mamba2)
    head_dim = _head_dim(fields["embedding_dim"], layer.num_heads, layer.head_dim)
    return Mamba2Config(**fields, **fields_of(layer, "num_heads", "num_groups"), head_dim=head_dim)


def _tensors(path, *own):
    """Return the tensors of a model, whose mixers have some of their own."""
    return (
        Tensor("backbone.embeddings.weight", ("embedding/embeddings",)),
        *norm(f"{H}norm", "block_{n}/normalization"),
        *own,
        Tensor(f"{H}mixer.conv1d.weight", (f"{path}convolution/kernel",), CONVOLUTION),
        Tensor(f"{H}mixer.conv1d.bias", (f"{path}convolution/bias",)),
        Tensor(f"{H}mixer.A_log", (f"{path}log_a",)),
        Tensor(f"{H}mixer.D", (f"{path}skip",)),
        *linear(f"{H}mixer.out_proj", f"{path}output"),
        *norm("backbone.norm_f", "normalization"),
        *linear("lm_head", "head"),
    )


def _read_rank(values):
    rank, default = values["time_step_rank"], -(-values["hidden_size"] // 16)
    if rank != "auto":
        checks.positive_integer("time_step_rank", rank)
    return {"dt_rank": None if rank in ("auto", default) else rank}


def _read_expand(values):
    if values["intermediate_size"] not in (None, values["expand"] * values["hidden_size"]):
        raise ValueError(f"intermediate_size={values['intermediate_size']}; expected expand * hidden_size")
    return {"expand": values["expand"]}


MAMBA = Family(
    model_type="mamba",
    architectures=("MambaForCausalLM", "MambaModel"),
    config=MambaConfig,
    settings=(
        same("hidden_size", "embedding_dim", 768),
        same("num_hidden_layers", "num_layers", 32),
        same("state_size", "state_dim", 16),
        Setting(
            {"expand": 2, "intermediate_size": None},
            _read_expand,
            lambda config: {"expand": config.expand, "intermediate_size": config.expand * config.embedding_dim},
        ),
        same("conv_kernel", "kernel_size", 4),
        Setting(
            {"time_step_rank": "auto"},
            _read_rank,
            lambda config: {"time_step_rank": config.dt_rank or -(-config.embedding_dim // 16)},
        ),
        same("use_bias", "use_bias", False),
        same("layer_norm_epsilon", "epsilon", 1e-5),
        same("tie_word_embeddings", "tie_embeddings", True),
    ),
    constants=CONSTANTS,
    ignored=frozenset(IGNORED.split()),
    tensors=_tensors(
        B,
        *linear(f"{H}mixer.in_proj", f"{B}input"),
        *linear(f"{H}mixer.x_proj", f"{B}dt_down", f"{B}b", f"{B}c"),
        *linear(f"{H}mixer.dt_proj", f"{B}dt_up"),
    ),
    **NAMES,
    describe=describe_mamba,
)


def _head_dim(width, num_heads, head_dim):
    """Return None for the head_dim that is the config's default."""
    return None if head_dim == -(-2 * width // num_heads) else head_dim


def _read_heads(values):
    width, num_heads, head_dim = (values[key] for key in ("hidden_size", "num_heads", "head_dim"))
    if head_dim is None or num_heads * head_dim != _read_expand(values)["expand"] * width:
        raise ValueError(f"num_heads={num_heads}, head_dim={head_dim}; expected a product of expand * hidden_size")
    return {"num_heads": num_heads, "head_dim": _head_dim(width, num_heads, head_dim)}


def _write_heads(config):
    head_dim = config.mixer(0).head_dim
    expand = config.num_heads * head_dim // config.embedding_dim
    return {"num_heads": config.num_heads, "head_dim": head_dim, "expand": expand}


def _read_limits(values):
    limits = values["time_step_limit"]
    if limits not in ([0, math.inf], [0, {"__float__": "Infinity"}]):  # JSON has no infinity
        raise ValueError(f"time_step_limit={limits!r}; expected [0, Infinity]")
    return {}


MAMBA2 = Family(
    model_type="mamba2",
    architectures=("Mamba2ForCausalLM", "Mamba2Model"),
    config=Mamba2Config,
    settings=(
        same("hidden_size", "embedding_dim", 4096),
        same("num_hidden_layers", "num_layers", 64),
        same("state_size", "state_dim", 128),
        same("n_groups", "num_groups", 8),
        same("conv_kernel", "kernel_size", 4),
        Setting({"num_heads": 128, "head_dim": 64, "expand": 2, "intermediate_size": None}, _read_heads, _write_heads),
        Setting({"time_step_limit": [0.0, math.inf]}, _read_limits, lambda config: {}),
        same("use_bias", "use_bias", False),
        same("layer_norm_epsilon", "epsilon", 1e-5),
        same("tie_word_embeddings", "tie_embeddings", False),
    ),
    constants=CONSTANTS,
    ignored=frozenset(IGNORED.split()) | {"chunk_size", "time_step_rank", "norm_before_gate"},
    tensors=_tensors(
        B2,
        # gate and u, B and C, and the time step, side by side in one matrix
        *linear(f"{H}mixer.in_proj", f"{B2}input", f"{B2}bc", f"{B2}dt"),
        Tensor(f"{H}mixer.dt_bias", (f"{B2}dt_bias",)),
        Tensor(f"{H}mixer.norm.weight", (f"{B2}scale",)),
    ),
    **NAMES,
    describe=describe_mamba2,
)

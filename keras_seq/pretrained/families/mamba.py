"""Mamba (Gu & Dao, 2023): `MambaForCausalLM`."""

from keras_seq import checks
from keras_seq.layers import SelectiveStateSpace
from keras_seq.models.families.linear import MambaConfig
from keras_seq.pretrained.family import (
    CONVOLUTION,
    TRANSPOSED,
    Family,
    Setting,
    Tensor,
    linear,
    normalization,
    same,
)
from keras_seq.pretrained.tensor_table import blocks_of

IGNORED = (
    "residual_in_fp32 time_step_scale time_step_min time_step_max time_step_init_scheme time_step_floor "
    "rescale_prenorm_residual use_mambapy use_associative_scan d_inner d_model n_layer fused_add_norm "
    "pad_vocab_size_multiple ssm_cfg layer_types"
)
NAMES = {  # of Mamba and Mamba-2: what is stored once, and how older files call the tensors
    "tied": {"lm_head.weight": "backbone.embeddings.weight"},
    "buffers": r"(?!)",
    "renames": (
        (r"^backbone\.embedding\.weight$", "backbone.embeddings.weight"),
        (r"^(?!backbone\.|lm_head\.)", "backbone."),
    ),
}
H, B = "backbone.layers.{n}.", "block_{n}/"


def describe(model) -> MambaConfig:
    """Return the config that builds a model."""
    blocks, others = blocks_of(model)
    layer = blocks[0].layers[0]
    if not isinstance(layer, SelectiveStateSpace):
        raise ValueError(f"{layer.name} is not a SelectiveStateSpace")
    width = model.embedding.output_dim
    rank = layer.dt_rank
    return MambaConfig(
        embedding_dim=width,
        num_layers=len(blocks),
        state_dim=layer.state_dim,
        expand=layer.expand,
        kernel_size=layer.kernel_size,
        dt_rank=None if rank == -(-width // 16) else rank,
        use_bias=layer.use_bias,
        epsilon=others[-1].epsilon,
        tie_embeddings=model.head is None,
        dropout=blocks[0].dropout,
    )


def _read_rank(values):
    rank, default = values["time_step_rank"], -(-values["hidden_size"] // 16)
    if rank != "auto":
        checks.positive_integer("time_step_rank", rank)
    return {"dt_rank": None if rank in ("auto", default) else rank}


def _write_rank(config):
    return {"time_step_rank": config.dt_rank or -(-config.embedding_dim // 16)}


def _read_inner(values):
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
            _read_inner,
            lambda config: {"expand": config.expand, "intermediate_size": config.expand * config.embedding_dim},
        ),
        same("conv_kernel", "kernel_size", 4),
        Setting({"time_step_rank": "auto"}, _read_rank, _write_rank),
        same("use_bias", "use_bias", False),
        same("layer_norm_epsilon", "epsilon", 1e-5),
        same("tie_word_embeddings", "tie_embeddings", True),
    ),
    constants={"use_conv_bias": True, "hidden_act": "silu", "rms_norm": True},
    ignored=frozenset(IGNORED.split()),
    tensors=(
        Tensor("backbone.embeddings.weight", ("embedding/embeddings",)),
        *normalization(f"{H}norm", f"{B}normalization"),
        *linear(f"{H}mixer.in_proj", f"{B}mamba/input"),
        Tensor(f"{H}mixer.conv1d.weight", (f"{B}mamba/convolution/kernel",), CONVOLUTION),
        Tensor(f"{H}mixer.conv1d.bias", (f"{B}mamba/convolution/bias",)),
        Tensor(
            f"{H}mixer.x_proj.weight",
            tuple(f"{B}mamba/{part}/kernel" for part in ("dt_down", "b", "c")),
            TRANSPOSED,
        ),
        *linear(f"{H}mixer.dt_proj", f"{B}mamba/dt_up"),
        Tensor(f"{H}mixer.A_log", (f"{B}mamba/log_a",)),
        Tensor(f"{H}mixer.D", (f"{B}mamba/skip",)),
        *linear(f"{H}mixer.out_proj", f"{B}mamba/output"),
        *normalization("backbone.norm_f", "normalization"),
        *linear("lm_head", "head"),
    ),
    **NAMES,
    describe=describe,
    architecture_of=lambda model: "MambaForCausalLM",
)

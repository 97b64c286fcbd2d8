"""Mamba-2 (Dao & Gu, 2024): `Mamba2ForCausalLM`."""

import math

from keras_seq.layers import Mamba2
from keras_seq.models.families.linear import Mamba2Config
from keras_seq.pretrained.families.mamba import IGNORED, NAMES
from keras_seq.pretrained.family import CONVOLUTION, TRANSPOSED, Family, Setting, Tensor, linear, normalization, same
from keras_seq.pretrained.tensor_table import blocks_of

H, B = "backbone.layers.{n}.", "block_{n}/"
IN = "input", "bc", "dt"  # gate and u, B and C, and the time step, side by side in one matrix


def describe(model) -> Mamba2Config:
    """Return the config that builds a model."""
    blocks, others = blocks_of(model)
    layer = blocks[0].layers[0]
    if not isinstance(layer, Mamba2):
        raise ValueError(f"{layer.name} is not a Mamba2")
    width = model.embedding.output_dim
    return Mamba2Config(
        embedding_dim=width,
        num_layers=len(blocks),
        num_heads=layer.num_heads,
        tie_embeddings=model.head is None,
        dropout=blocks[0].dropout,
        head_dim=_head_dim(width, layer.num_heads, layer.head_dim),
        state_dim=layer.state_dim,
        num_groups=layer.num_groups,
        kernel_size=layer.kernel_size,
        use_bias=layer.use_bias,
        epsilon=others[-1].epsilon,
    )


def _head_dim(width, num_heads, head_dim):
    """Return None for the head_dim that is the config's default."""
    return None if head_dim == -(-2 * width // num_heads) else head_dim


def _read_heads(values):
    width, expand, num_heads, head_dim = (values[key] for key in ("hidden_size", "expand", "num_heads", "head_dim"))
    if values["intermediate_size"] not in (None, expand * width):
        raise ValueError(f"intermediate_size={values['intermediate_size']}; expected expand * hidden_size")
    if num_heads * head_dim != expand * width:
        raise ValueError(f"num_heads={num_heads}, head_dim={head_dim}; expected a product of expand * hidden_size")
    return {"num_heads": num_heads, "head_dim": _head_dim(width, num_heads, head_dim)}


def _write_heads(config):
    head_dim = config.mixer(0).head_dim
    inner = config.num_heads * head_dim
    return {"num_heads": config.num_heads, "head_dim": head_dim, "expand": inner // config.embedding_dim}


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
    constants={"use_conv_bias": True, "hidden_act": "silu", "rms_norm": True},
    ignored=frozenset(IGNORED.split()) | {"chunk_size", "time_step_rank", "norm_before_gate"},
    tensors=(
        Tensor("backbone.embeddings.weight", ("embedding/embeddings",)),
        *normalization(f"{H}norm", f"{B}normalization"),
        Tensor(f"{H}mixer.in_proj.weight", tuple(f"{B}mamba2/{part}/kernel" for part in IN), TRANSPOSED),
        Tensor(f"{H}mixer.in_proj.bias", tuple(f"{B}mamba2/{part}/bias" for part in IN)),
        Tensor(f"{H}mixer.conv1d.weight", (f"{B}mamba2/convolution/kernel",), CONVOLUTION),
        Tensor(f"{H}mixer.conv1d.bias", (f"{B}mamba2/convolution/bias",)),
        Tensor(f"{H}mixer.dt_bias", (f"{B}mamba2/dt_bias",)),
        Tensor(f"{H}mixer.A_log", (f"{B}mamba2/log_a",)),
        Tensor(f"{H}mixer.D", (f"{B}mamba2/skip",)),
        Tensor(f"{H}mixer.norm.weight", (f"{B}mamba2/scale",)),
        *linear(f"{H}mixer.out_proj", f"{B}mamba2/output"),
        *normalization("backbone.norm_f", "normalization"),
        *linear("lm_head", "head"),
    ),
    **NAMES,
    describe=describe,
    architecture_of=lambda model: "Mamba2ForCausalLM",
)

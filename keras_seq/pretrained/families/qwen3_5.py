"""Qwen3.5 for text, `Qwen3_5ForCausalLM`, and Qwen3-Next without experts: Gated DeltaNet and gated attention in turns.

The two have the same function. Qwen3-Next's file holds queries, keys, values and gates of Gated DeltaNet in one matrix,
and betas and decays in another, both by head of keys; these families have no experts, and refuse them by name.
"""

import dataclasses

import numpy as np

from keras_seq.layers import GatedDeltaNet
from keras_seq.models.families.hybrid import Qwen35Config
from keras_seq.pretrained.families.llama import GATED, ROPE, positions_of, rope_values, take_share, write_rotary
from keras_seq.pretrained.families.recurrent_gemma import describe_hybrid, period, write_kinds
from keras_seq.pretrained.family import (
    CONVOLUTION,
    Family,
    Layout,
    Setting,
    Tensor,
    dropouts,
    linear,
    linears,
    norm,
    same,
)
from keras_seq.pretrained.tensor_table import fields_of

H, B, F = "model.layers.{n}.", "block_{n}/", "feed_forward_{n}/"
D, A = f"{B}gated_deltanet", f"{B}self_attention"
KINDS = {"linear_attention": "d", "full_attention": "a"}
SHARE = 0.25  # of a head that is rotated, where config.json does not say it


def describe(model) -> Qwen35Config:
    """Return the config that builds a model."""
    attention, delta_net, fields = describe_hybrid(model, GatedDeltaNet, "d")
    if attention is not None:
        fields |= fields_of(attention, "num_heads", "positions", "attention_bias")
        fields["num_key_value_heads"] = attention.num_key_value_heads or attention.num_heads
        fields["key_dim"] = attention.key_dim or model.embedding.output_dim // attention.num_heads
    if delta_net is not None:
        fields |= {
            "linear_num_key_heads": delta_net.num_key_heads or delta_net.num_heads,
            "linear_num_value_heads": delta_net.num_heads,
            "linear_key_dim": delta_net.key_dim,
            "linear_value_dim": delta_net.value_dim,
            "kernel_size": delta_net.kernel_size,
        }
    return Qwen35Config(**fields, context_length=model.context_length, tie_embeddings=model.head is None)


def _read_kinds(values):
    types, num_layers = values["layer_types"], values["num_hidden_layers"]
    if types is None:
        interval = values["full_attention_interval"]
        kinds = "".join("d" if n % interval else "a" for n in range(1, num_layers + 1))
        return {"num_layers": num_layers, "pattern": period(kinds)}
    if not isinstance(types, list) or len(types) != num_layers or not all(t in [*KINDS] for t in types):
        expected = f"num_hidden_layers={num_layers} of {' and '.join(map(repr, KINDS))}"
        raise ValueError(f"layer_types={types!r}; expected {expected}")
    return {"num_layers": num_layers, "pattern": period("".join(KINDS[kind] for kind in types))}


def _read_rotation(values):
    rope, name = rope_values(values)
    for key in ("mrope_section", "mrope_interleaved"):  # of images: a text has one position in all of its parts
        rope.pop(key, None)
    return {"positions": positions_of(rope, name, partial_rotary_factor=take_share(rope, name, values, SHARE))}


def _write_rotation(config):
    return write_rotary(config) | {"partial_rotary_factor": config.positions.partial_rotary_factor}


def _by_head(num_heads, *widths):
    """Return the layout of parts that lie side by side within each head, not one part after the other."""
    columns = np.arange(num_heads * sum(widths)).reshape(num_heads, -1)
    parts = np.split(columns, np.cumsum(widths)[:-1], axis=1)
    order = np.concatenate([part.reshape(-1) for part in parts])
    back = np.argsort(order)
    return Layout(lambda a: a[order].T, lambda a: a.T[back])


def _query_and_gate(shape_of):
    width = shape_of(f"{A}/query_normalization/scale")[0]
    return _by_head(shape_of(f"{A}/query/kernel")[1] // width, width, width)


def _tensors(*projections):
    """Return the tensors, of which Gated DeltaNet's projections differ in the two families."""
    return (
        Tensor("model.embed_tokens.weight", ("embedding/embeddings",)),
        *norm(f"{H}input_layernorm", f"{B}normalization"),
        *projections,
        Tensor(f"{H}linear_attn.conv1d.weight", (f"{D}/convolution/kernel",), CONVOLUTION),
        Tensor(f"{H}linear_attn.dt_bias", (f"{D}/dt_bias",)),
        Tensor(f"{H}linear_attn.A_log", (f"{D}/log_a",)),
        Tensor(f"{H}linear_attn.norm.weight", (f"{D}/scale",)),
        *linear(f"{H}linear_attn.out_proj", f"{D}/output"),
        *norm(f"{H}post_attention_layernorm", f"{F}normalization"),
        *linears(f"{H}mlp", f"{F}feed_forward", **GATED),
        *norm(f"{H}input_layernorm", f"{B}self_attention_normalization"),
        *linear(f"{H}self_attn.q_proj", f"{A}/query", f"{A}/gate", layout=_query_and_gate),
        *linears(f"{H}self_attn", A, k_proj="key", v_proj="value", o_proj="output"),
        *norm(f"{H}self_attn.q_norm", f"{A}/query_normalization"),
        *norm(f"{H}self_attn.k_norm", f"{A}/key_normalization"),
        *norm(f"{H}post_attention_layernorm", f"{B}feed_forward_normalization"),
        *linears(f"{H}mlp", f"{B}feed_forward", **GATED),
        *norm("model.norm", "normalization"),
        *linear("lm_head", "head"),
    )


def _settings(num_layers, embedding_dim, feed_forward_dim, num_key_value_heads):
    """Return the settings, whose defaults differ in these sizes."""
    return (
        Setting(
            {"num_hidden_layers": num_layers, "layer_types": None, "full_attention_interval": 4},
            _read_kinds,
            lambda config: write_kinds(config.num_layers, "layer_types", KINDS, config.kinds),
            {"num_layers": "num_hidden_layers", "pattern": "layer_types"},
        ),
        same("hidden_size", "embedding_dim", embedding_dim),
        same("intermediate_size", "feed_forward_dim", feed_forward_dim),
        same("max_position_embeddings", "context_length", 32_768),
        same("num_attention_heads", "num_heads", 16),
        same("num_key_value_heads", "num_key_value_heads", num_key_value_heads),
        same("head_dim", "key_dim", 256),
        same("linear_num_key_heads", "linear_num_key_heads", 16),
        same("linear_num_value_heads", "linear_num_value_heads", 32),
        same("linear_key_head_dim", "linear_key_dim", 128),
        same("linear_value_head_dim", "linear_value_dim", 128),
        same("linear_conv_kernel_dim", "kernel_size", 4),
        same("attention_bias", "attention_bias", False),
        same("rms_norm_eps", "epsilon", 1e-6),
        same("tie_word_embeddings", "tie_embeddings", False),
        Setting(ROPE | {"partial_rotary_factor": SHARE}, _read_rotation, _write_rotation),
        dropouts(attention_dropout=0.0),
    )


QWEN3_5 = Family(
    model_type="qwen3_5_text",
    architectures=("Qwen3_5ForCausalLM", "Qwen3_5TextModel"),
    config=Qwen35Config,
    settings=_settings(32, 4096, 12_288, 4),
    constants={"hidden_act": "silu", "attn_output_gate": True},
    ignored=frozenset({"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mlp_only_layers"}),
    tensors=_tensors(
        *linear(f"{H}linear_attn.in_proj_qkv", f"{D}/query", f"{D}/key", f"{D}/value"),
        *linears(f"{H}linear_attn", D, in_proj_z="gate", in_proj_b="beta", in_proj_a="dt"),
    ),
    tied={"lm_head.weight": "model.embed_tokens.weight"},
    buffers=r"model\.(mtp|visual)\..*",  # what predicts further ids, and what reads images
    renames=((r"^model\.language_model\.", "model."), (r"^(?!model\.|lm_head\.)", "model.")),
    describe=describe,
)


def _read_experts(values):
    dense, step = values["mlp_only_layers"], values["decoder_sparse_step"]
    if not isinstance(dense, list | None) or not all(type(n) is int for n in dense or ()):
        raise ValueError(f"mlp_only_layers={dense!r}; expected a list of numbers of layers, or null")
    if values["num_experts"]:
        for n in {*range(values["num_hidden_layers"])} - {*(dense or ())}:
            if (n + 1) % step == 0:
                expected = "expected 0, or every layer in mlp_only_layers: keras_seq has no mixture of experts"
                raise ValueError(f"num_experts={values['num_experts']} in layer {n}; {expected}")
    return {}


def _next_tensors(config):
    heads, keys = config.linear_num_key_heads, config.linear_key_dim
    values_per_key = config.linear_num_value_heads // heads
    values = values_per_key * config.linear_value_dim
    qkvz, ba = _by_head(heads, keys, keys, values, values), _by_head(heads, values_per_key, values_per_key)
    parts = (f"{D}/{part}" for part in ("query", "key", "value", "gate"))
    return _tensors(
        *linear(f"{H}linear_attn.in_proj_qkvz", *parts, layout=qkvz),
        *linear(f"{H}linear_attn.in_proj_ba", f"{D}/beta", f"{D}/dt", layout=ba),
    )


_OF_EXPERTS = (
    "moe_intermediate_size shared_expert_intermediate_size num_experts_per_tok norm_topk_prob output_router_logits "
    "router_aux_loss_coef"
)
QWEN3_NEXT = dataclasses.replace(
    QWEN3_5,
    model_type="qwen3_next",
    architectures=("Qwen3NextForCausalLM", "Qwen3NextModel"),
    settings=(
        *_settings(48, 2048, 5632, 2),
        Setting(
            {"num_experts": 512, "mlp_only_layers": None, "decoder_sparse_step": 1},
            _read_experts,
            lambda config: {"num_experts": 0},
        ),
    ),
    ignored=QWEN3_5.ignored - {"mlp_only_layers"} | {*_OF_EXPERTS.split()},
    tensors=_next_tensors,
)

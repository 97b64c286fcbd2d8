"""Layers and models refuse their arguments where they are made, not where a tensor meets them."""

import inspect

import keras
import numpy as np
import pytest

from keras_seq import checks, layers, models
from tests.layers.test_contract import BACKEND, CASES, B, D, T, arrays, run

WHOLE = (0, -1, 1.5, "x", None, True, float("nan"), 2**63)
RECURRENT_HEADS = (
    *(layers.RGLRU, layers.GriffinRecurrentBlock, layers.Mamba2, layers.GatedLinearAttention, layers.GatedDeltaNet),
    *(layers.MLSTM, layers.SLSTM, layers.RWKV7TimeMix),
)
FRACTION = (-0.1, 1.0, "x", None, True, float("nan"), float("inf"))
ABOVE_ZERO = (0, -1, "x", None, float("nan"), float("inf"))
X = np.zeros((2, 3, 4), "float32")

LAYERS = {  # what is made, the argument, its bad values
    **{
        f"{layer.__name__}({name})": (layer, {"units": 3}, name, values)
        for layer in (layers.SimpleRNN, layers.GRU, layers.LSTM, layers.LayerNormLSTM)
        for name, values in (("units", WHOLE), ("dropout", FRACTION), ("recurrent_dropout", FRACTION))
    },
    "LayerNormLSTM(epsilon)": (layers.LayerNormLSTM, {"units": 3}, "epsilon", ABOVE_ZERO),
    "MinGRU": (layers.MinGRU, {}, "units", WHOLE),
    "MinLSTM": (layers.MinLSTM, {}, "units", WHOLE),
    "CausalDepthwiseConv1D": (layers.CausalDepthwiseConv1D, {}, "kernel_size", WHOLE),
    "SelectiveStateSpace(state)": (layers.SelectiveStateSpace, {}, "state_dim", WHOLE),
    "SelectiveStateSpace(expand)": (layers.SelectiveStateSpace, {}, "expand", WHOLE),
    "SelectiveStateSpace(kernel)": (layers.SelectiveStateSpace, {}, "kernel_size", WHOLE),
    **{
        f"{kind.__name__}({name})": (kind, others, name, tuple(v for v in WHOLE if v is not None or not optional))
        for kind, others, name, optional in (
            *((kind, {}, "num_heads", False) for kind in RECURRENT_HEADS),
            (layers.GriffinRecurrentBlock, {"num_heads": 2}, "head_dim", True),
            (layers.GriffinRecurrentBlock, {"num_heads": 2}, "kernel_size", False),
            (layers.Mamba2, {"num_heads": 2}, "head_dim", False),
            (layers.Mamba2, {"num_heads": 2}, "state_dim", False),
            (layers.Mamba2, {"num_heads": 2}, "num_groups", False),
            (layers.GatedLinearAttention, {"num_heads": 2}, "key_dim", True),
            (layers.GatedLinearAttention, {"num_heads": 2}, "gate_rank", False),
            (layers.GatedDeltaNet, {"num_heads": 2}, "value_dim", True),
            (layers.MLSTM, {"num_heads": 2}, "qkv_block_size", False),
            (layers.RWKV7TimeMix, {"num_heads": 2}, "rank", True),
            (layers.RWKV7ChannelMix, {}, "feed_forward_dim", False),
            (layers.RWKV7Blocks, {"num_heads": 2, "feed_forward_dim": 4}, "num_layers", False),
            (layers.RWKV7Blocks, {"num_layers": 1, "feed_forward_dim": 4}, "num_heads", False),
        )
    },
    "Bidirectional(layer)": (layers.Bidirectional, {}, "layer", (None, 7, "lstm")),
    "Bidirectional(mode)": (layers.Bidirectional, {"layer": layers.LSTM(3)}, "merge_mode", ("x", "mean", 7)),
    "Stateful(layer)": (layers.Stateful, {"batch_size": 2}, "layer", (None, 7, keras.layers.Dense(3))),
    "PreNormResidual(layers)": (layers.PreNormResidual, {}, "layers", (None, 7, ["x"], layers.LSTM(3))),
    "PreNormResidual(dropout)": (layers.PreNormResidual, {"layers": [layers.LSTM(4)]}, "dropout", FRACTION),
    "PreNormResidual(norm)": (layers.PreNormResidual, {"layers": [layers.LSTM(4)]}, "normalization", ("x", None, 7)),
    "MultiHeadSelfAttention(heads)": (layers.MultiHeadSelfAttention, {}, "num_heads", WHOLE),
    "MultiHeadSelfAttention(dropout)": (layers.MultiHeadSelfAttention, {"num_heads": 2}, "dropout", FRACTION),
    "MultiHeadSelfAttention(shared)": (
        layers.MultiHeadSelfAttention,
        {"num_heads": 2},
        "num_key_value_heads",
        (0, -1, 3, "x", 1.5),
    ),
    "MultiHeadSelfAttention(positions)": (layers.MultiHeadSelfAttention, {"num_heads": 2}, "positions", ("x", 7)),
    "CrossAttention(heads)": (layers.CrossAttention, {}, "num_heads", WHOLE),
    "CrossAttention(dropout)": (layers.CrossAttention, {"num_heads": 2}, "dropout", FRACTION),
    "PositionalEncoding": (layers.PositionalEncoding, {}, "base", ABOVE_ZERO),
    "LearnedPositions": (layers.LearnedPositions, {}, "length", WHOLE),
    "RotaryPositions": (layers.RotaryPositions, {}, "base", (*ABOVE_ZERO, 1)),
    "SegmentEmbedding": (layers.SegmentEmbedding, {}, "num_segments", WHOLE),
    "FeedForward": (layers.FeedForward, {}, "feed_forward_dim", WHOLE),
    "FeedForward(dropout)": (layers.FeedForward, {"feed_forward_dim": 3}, "dropout", FRACTION),
    "GatedFeedForward": (layers.GatedFeedForward, {}, "feed_forward_dim", WHOLE),
    "TransformerBlock(heads)": (layers.TransformerBlock, {"feed_forward_dim": 4}, "num_heads", WHOLE),
    "TransformerBlock(width)": (layers.TransformerBlock, {"num_heads": 2}, "feed_forward_dim", WHOLE),
    "TransformerBlock(dropout)": (
        layers.TransformerBlock,
        {"num_heads": 2, "feed_forward_dim": 4},
        "dropout",
        FRACTION,
    ),
    "TransformerBlock(norm)": (
        layers.TransformerBlock,
        {"num_heads": 2, "feed_forward_dim": 4},
        "normalization",
        ("x", None, 7),
    ),
}


@pytest.mark.parametrize(("layer", "others", "name", "values"), LAYERS.values(), ids=LAYERS)
def test_a_layer_that_cannot_be(refused, layer, others, name, values):
    for value in values:
        refused(lambda value=value: layer(**{**others, name: value}), name)


MODELS = [
    (kind, field.name, field.type)
    for kind in models.MODELS.values()
    for field in kind.__dataclass_fields__.values()
    if "ClassVar" not in str(field.type)
]


@pytest.mark.parametrize(("kind", "name", "of_type"), MODELS, ids=[f"{k.__name__}-{n}" for k, n, _ in MODELS])
def test_a_model_that_cannot_be(refused, kind, name, of_type):
    whole = tuple(value for value in WHOLE if value is not None or "None" not in str(of_type))
    of_name = {"epsilon": ABOVE_ZERO, "full_attention_layers": (value for value in whole if value != 0)}
    known = {float: FRACTION, bool: ("x", 7, None), str: ("nothing", 7, None)}
    for value in of_name.get(name) or known.get(of_type, whole):
        refused(lambda value=value: kind(**{name: value}), name, "expected")


@pytest.mark.parametrize("kind", models.MODELS.values())
def test_no_model_is_built_for_a_number_of_ids_that_is_none(refused, kind):
    definition = kind(**({"context_length": 8} if "context_length" in kind.__dataclass_fields__ else {}))
    for value in WHOLE:
        refused(lambda value=value: definition.build_model(value), "vocabulary_size")


SHAPES = {
    "LSTM": layers.LSTM(3),
    "MultiHeadSelfAttention": layers.MultiHeadSelfAttention(2),
    "TransformerBlock": layers.TransformerBlock(2, 4),
    "MinGRU": layers.MinGRU(3),
    "SelectiveStateSpace": layers.SelectiveStateSpace(),
    "CausalConvolution": layers.CausalDepthwiseConv1D(2),
    "PositionalEncoding": layers.PositionalEncoding(),
    "LearnedPositions": layers.LearnedPositions(3),
}


@pytest.mark.parametrize("layer", SHAPES.values(), ids=SHAPES)
def test_a_layer_says_which_shape_it_wants(refused, layer):
    refused(lambda: layer(X[0]), r"\[B, T, D\]")


def odd_inputs():
    """What is no dense tensor of real numbers, or has another width than `X`, by backend."""
    x = np.zeros((B, T, D), "float32")
    yield from (None, x.tolist(), np.full(x.shape, "a"), x.astype("complex64"), x.astype(object))
    yield np.zeros((B, T, D + 1), "float32")
    if BACKEND != "torch":  # where Keras makes no such input
        yield keras.Input((T, D), sparse=True)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        yield from (tf.sparse.from_dense(x), tf.RaggedTensor.from_tensor(x), tf.constant(np.full(x.shape, "a")))
    elif BACKEND == "jax":
        from jax.experimental import sparse

        yield sparse.BCOO.fromdense(x)
    else:
        import torch

        yield from (torch.tensor(x).to_sparse(), torch.tensor(x, dtype=torch.complex64))


@pytest.mark.any_backend
@pytest.mark.parametrize("name", CASES)
def test_a_layer_names_inputs_that_cannot_be(refused, name):
    layer, values = CASES[name].make(), arrays(CASES[name])
    run(layer, values)
    for x in (*odd_inputs(), np.zeros((), "float32")):
        refused(lambda x=x: run(layer, [x, *values[1:]]), "inputs")
    refused(lambda: run(CASES[name].make(), [np.full((B, T, D), "a"), *values[1:]]), "inputs")
    if "mask" in inspect.signature(layer.call).parameters:
        refused(lambda: run(layer, values, mask=np.full((B, T), "a")), "mask")


def test_attention_says_which_shapes_belong_together(refused):
    q = X[:, :, None]
    refused(lambda: layers.attention(X, q, q), "q has shape", "expected")
    refused(lambda: layers.attention(1.0, q, q), "q has shape")
    refused(lambda: layers.attention(q, q[..., :2], q), "one width")
    refused(lambda: layers.attention(q, np.repeat(q, 2, axis=2), q), "heads")


def test_what_stands_behind_an_encoder_wants_one(refused):
    for value in (None, 7, keras.Sequential()):
        for head in (models.text_classifier, models.token_classifier):
            refused(lambda value=value, head=head: head(value, 2), "encoder", "expected")
        refused(lambda value=value: models.masked_lm(value), "encoder")
    for value in (None, 7, "x"):
        refused(lambda value=value: models.assert_causal(value), "model")


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (checks.positive_integer, WHOLE),
        (checks.non_negative_integer, (-1, 1.5, "x", None, True, 2**63)),
        (checks.positive_number, ABOVE_ZERO),
        (checks.fraction, FRACTION),
        (lambda name, value: checks.number(name, value, min_value=0, max_value=1), (-1, 1.1, "x", float("nan"), True)),
        (checks.boolean, (0, 1, "x", None)),
    ],
)
def test_the_checks_name_the_argument_and_the_value(refused, check, bad):
    for value in bad:
        assert refused(lambda value=value: check("some_name", value), "some_name=", "expected").count(repr(value))


@pytest.mark.parametrize(
    ("kind", "options", "name", "expected"),
    [
        (layers.TransformerBlock, {"num_heads": 2}, "intermediate_dim", "feed_forward_dim"),  # KerasHub
        (layers.TransformerBlock, {"num_heads": 2}, "ff_dim", "feed_forward_dim"),
        (layers.TransformerBlock, {"feed_forward_dim": 8}, "nhead", "num_heads"),  # PyTorch
        (layers.FeedForward, {}, "dim_feedforward", "feed_forward_dim"),
        (layers.GatedFeedForward, {}, "intermediate_size", "feed_forward_dim"),  # transformers
        (layers.MultiHeadSelfAttention, {}, "num_attention_heads", "num_heads"),
        (layers.MultiHeadSelfAttention, {"num_heads": 2}, "dropout_rate", "dropout"),
        (layers.CrossAttention, {"num_heads": 2}, "head_dim", "key_dim"),
        (layers.LSTM, {}, "hidden_size", "units"),
    ],
)
def test_an_argument_by_a_name_from_elsewhere_names_ours(refused, kind, options, name, expected):
    refused(lambda: kind(**options, **{name: 8}), rf"^{kind.__name__} has no argument {name}=8; expected {expected}\.$")


@pytest.mark.parametrize("kind", [layers.LSTM, layers.SLSTM, layers.TransformerBlock, layers.Mamba2])
def test_ids_without_an_embedding_are_told_where_they_go(refused, kind):
    layer = kind(2, 4) if kind is layers.TransformerBlock else kind(4)
    for ids in (np.zeros((2, 3), "int32"), keras.Input((3,), dtype="int32")):
        refused(lambda ids=ids: layer(ids), r"Ids \[B, T\] go through an Embedding first")

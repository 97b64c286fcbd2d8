"""Layers and models refuse their arguments where they are made, not where a tensor meets them."""

import inspect

import keras
import numpy as np
import pytest

from keras_seq import checks, layers, models
from tests.layers.test_contract import BACKEND, CASES, B, D, T, arrays, run

WHOLE = (0, -1, 1.5, "x", None, True, float("nan"), 2**63)
HEADED = (
    *(layers.RGLRU, layers.GriffinRecurrentBlock, layers.Mamba2, layers.GatedLinearAttention, layers.GatedDeltaNet),
    *(layers.KimiDeltaAttention, layers.MLSTM, layers.SLSTM, layers.RWKV7TimeMix),
)
NO_SIZES = tuple(value for value in WHOLE if value is not None)  # where None is allowed
FRACTION = (-0.1, 1.0, "x", None, True, float("nan"), float("inf"))
ABOVE_ZERO = (0, -1, "x", None, float("nan"), float("inf"))
X = np.zeros((2, 3, 4), "float32")
HEADS, BLOCK = {"num_heads": 2}, {"num_heads": 2, "feed_forward_dim": 4}
LAYERS = [  # what is made, its other arguments, the argument, its bad values
    *(
        (layer, {"units": 3}, name, values)
        for layer in (layers.SimpleRNN, layers.GRU, layers.LSTM, layers.LayerNormLSTM)
        for name, values in (("units", WHOLE), ("dropout", FRACTION), ("recurrent_dropout", FRACTION))
    ),
    (layers.LayerNormLSTM, {"units": 3}, "epsilon", ABOVE_ZERO),
    *((kind, {}, "num_heads", WHOLE) for kind in (*HEADED, layers.MultiHeadSelfAttention, layers.CrossAttention)),
    *((kind, {}, "units", WHOLE) for kind in (layers.MinGRU, layers.MinLSTM)),
    (layers.CausalDepthwiseConv1D, {}, "kernel_size", WHOLE),
    (layers.CausalDepthwiseConv1D, {}, "use_bias", (0, "x", None)),
    *((layers.SelectiveStateSpace, {}, name, WHOLE) for name in ("state_dim", "expand", "kernel_size")),
    (layers.SelectiveStateSpace, {}, "dt_rank", NO_SIZES),
    *((layers.GriffinRecurrentBlock, HEADS, *case) for case in (("head_dim", NO_SIZES), ("kernel_size", WHOLE))),
    *((layers.Mamba2, HEADS, name, WHOLE) for name in ("head_dim", "state_dim", "num_groups")),
    *((layers.GatedLinearAttention, HEADS, *case) for case in (("key_dim", NO_SIZES), ("gate_rank", WHOLE))),
    *((layers.GatedDeltaNet, HEADS, *case) for case in (("value_dim", NO_SIZES), ("num_householder", WHOLE))),
    (layers.GatedDeltaNet, HEADS, "num_key_heads", (*NO_SIZES, 3)),
    *((layers.GatedDeltaNet, HEADS, name, (0, 1, "x", None)) for name in ("allow_neg_eigval", "use_conv_bias")),
    *((layers.KimiDeltaAttention, HEADS, name, NO_SIZES) for name in ("key_dim", "value_dim", "gate_rank")),
    (layers.MLSTM, HEADS, "qkv_block_size", WHOLE),
    (layers.RWKV7TimeMix, HEADS, "rank", NO_SIZES),
    (layers.RWKV7ChannelMix, {}, "feed_forward_dim", WHOLE),
    *((layers.RWKV7Blocks, {"num_layers": 1, **BLOCK}, name, WHOLE) for name in ("num_layers", "num_heads")),
    (layers.Bidirectional, {}, "layer", (None, 7, "lstm")),
    (layers.Bidirectional, {"layer": layers.LSTM(3)}, "merge_mode", ("x", "mean", 7)),
    (layers.Stateful, {"batch_size": 2}, "layer", (None, 7, keras.layers.Dense(3))),
    (layers.PreNormResidual, {}, "layers", (None, 7, ["x"], layers.LSTM(3))),
    (layers.PreNormResidual, {"layers": [layers.LSTM(4)]}, "dropout", FRACTION),
    (layers.PreNormResidual, {"layers": [layers.LSTM(4)]}, "normalization", ("x", 7)),
    (layers.PreNormResidual, {"layers": [layers.LSTM(4)]}, "center", ("x", 7, None)),
    *((kind, HEADS, "dropout", FRACTION) for kind in (layers.MultiHeadSelfAttention, layers.CrossAttention)),
    (layers.MultiHeadSelfAttention, HEADS, "num_key_value_heads", (0, -1, 3, "x", 1.5)),
    (layers.MultiHeadSelfAttention, HEADS, "positions", ("x", 7)),
    *((kind, HEADS, "scale", (0, -1, "x", True)) for kind in (layers.MultiHeadSelfAttention, layers.CrossAttention)),
    *(
        (kind, HEADS, "qk_normalization", ("layer", None, 7))
        for kind in (layers.MultiHeadSelfAttention, layers.CrossAttention)
    ),
    *((layers.MultiHeadSelfAttention, HEADS, name, (0, "x", None)) for name in ("use_output_gate", "use_sinks")),
    *((layers.MultiHeadSelfAttention, HEADS, name, NO_SIZES) for name in ("key_dim", "value_dim", "sliding_window")),
    (layers.PositionalEncoding, {}, "base", ABOVE_ZERO),
    (layers.LearnedPositions, {}, "length", WHOLE),
    (layers.RotaryPositions, {}, "base", (*ABOVE_ZERO, 1)),
    (layers.BucketedPositions, {}, "num_buckets", (*WHOLE, 3)),
    (layers.BucketedPositions, {}, "max_distance", (*WHOLE, 16, 2**20 + 1)),
    (layers.BucketedPositions, {}, "scale", (0, -1, "x", True)),
    (layers.BucketedPositions, {}, "shared", (0, "x", None)),
    (layers.SegmentEmbedding, {}, "num_segments", WHOLE),
    *((kind, {}, "feed_forward_dim", WHOLE) for kind in (layers.FeedForward, layers.GatedFeedForward)),
    (layers.FeedForward, {"feed_forward_dim": 3}, "dropout", FRACTION),
    *((layers.TransformerBlock, BLOCK, name, WHOLE) for name in ("num_heads", "feed_forward_dim")),
    (layers.TransformerBlock, BLOCK, "dropout", FRACTION),
    (layers.TransformerBlock, BLOCK, "sliding_window", NO_SIZES),
    (layers.TransformerBlock, BLOCK, "normalization", ("x", None, 7)),
]


@pytest.mark.parametrize(
    ("layer", "others", "name", "values"), LAYERS, ids=[f"{kind.__name__}({name})" for kind, _, name, _ in LAYERS]
)
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
    but_zero = [value for value in whole if value != 0]
    of_name = {"epsilon": ABOVE_ZERO}
    of_name |= dict.fromkeys(("full_attention_layers", "pad_token_id", "decoder_start_token_id"), but_zero)
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
@pytest.mark.parametrize("name", [name for name in CASES if name != "SegmentEmbedding"])
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
        (checks.boolean, (0, 1, "x", None, np.array([True]))),
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


REFUSED = [  # what is made, and words of the message
    (lambda: layers.SelectiveStateSpace(kernel_size=1), "kernel_size=1; expected at least 2"),
    (lambda: layers.CausalDepthwiseConv1D(1), "kernel_size=1", "at least 2"),
    (lambda: layers.Mamba2(4, num_groups=3), "num_groups=3; expected a divisor of num_heads=4"),
    (lambda: layers.MLSTM(2, head_dim=6), "head_dim=6; expected a multiple of qkv_block_size=4"),
    (lambda: layers.SLSTM(4).build((None, None, D)), "num_heads=4; expected a divisor of the width 6"),
    (lambda: layers.RGLRU(4).build((None, None, D)), "num_heads=4; expected a divisor of the width 6"),
    (lambda: layers.RWKV7TimeMix(2, value_residual=True)(np.ones((B, T, D), "float32")), "first_value is missing"),
    (lambda: layers.FeedForward(4, activation="swish-ish"), "activation", "swish-ish"),
    (lambda: layers.FeedForward(4).build((3,)), "inputs has shape (3,)", "[B, ..., D]"),
    (lambda: layers.GatedFeedForward(4).build((3, None)), "inputs has shape", "D known"),
    (lambda: layers.MultiHeadSelfAttention(4, num_key_value_heads=3), "num_key_value_heads", "3", "divisor", "4"),
    (lambda: layers.MultiHeadSelfAttention(2, positions="rotary"), "positions", "'rotary'", "RotaryPositions"),
    (lambda: layers.MultiHeadSelfAttention(2, kernel_initializer="glorot"), "glorot"),
    (
        lambda: layers.MultiHeadSelfAttention(4).build((None, None, D)),
        "num_heads=4; expected a divisor of the width D=6",
    ),
    (lambda: layers.MultiHeadSelfAttention(2).build((None, None, None)), "D known"),
    (
        lambda: layers.MultiHeadSelfAttention(2, key_dim=3, positions=layers.RotaryPositions()).build((None, None, D)),
        "key_dim=3; expected an even number",
    ),
    (lambda: layers.TransformerBlock(2, 12, activation="swigloo"), "activation", "swigloo"),
    (lambda: layers.TransformerBlock(2, 12, positions=7), "positions=7", "RotaryPositions"),
    (lambda: layers.TransformerBlock(2, 12, num_key_value_heads=3), "num_key_value_heads=3", "divisor"),
    (lambda: layers.RotaryPositions(partial_rotary_factor=1.5), "partial_rotary_factor=1.5", "at most 1"),
    (lambda: layers.RotaryPositions(partial_rotary_factor=0.0), "partial_rotary_factor=0.0"),
    (
        lambda: layers.RotaryPositions(partial_rotary_factor=0.5).validate_key_dim(10),
        "key_dim=10, of which 5",
        "even number",
    ),
    (lambda: layers.RotaryPositions(scaling="magic"), "scaling='magic'", "'linear'", "'yarn'"),
    (lambda: layers.RotaryPositions(scaling="linear", scaling_factor=0.5), "scaling_factor=0.5", "at least 1"),
    (lambda: layers.RotaryPositions(scaling_factor=2.0), "scaling_factor=2.0", "scaling=None"),
    (lambda: layers.RotaryPositions(scaling="yarn", scaling_factor=2.0), "original_context_length=None", "an integer"),
    (lambda: layers.RotaryPositions(scaling="ntk", scaling_factor=2.0).validate_key_dim(2), "key_dim=2", "at least 4"),
    (lambda: layers.RotaryPositions().validate_key_dim(5), "key_dim=5", "even"),
    (lambda: layers.PositionalEncoding().build((None, 3)), "inputs has shape (None, 3)", "[B, T, D]"),
    (lambda: layers.LearnedPositions(3).build((None, 3, None)), "inputs has shape", "D known"),
    (lambda: layers.PositionalEncoding()(np.ones((B, T, D)), mask=np.ones(4)), "mask has shape (4,)", "rank 2"),
]


@pytest.mark.parametrize(("make", "words"), [(make, words) for make, *words in REFUSED])
def test_what_does_not_go_together_is_refused(make, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are the match
        make()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_what_is_asked_of_a_call_or_a_layer_of_another_kind_is_refused():
    attends, x = layers.MultiHeadSelfAttention(2), np.ones((B, T, D), "float32")
    with pytest.raises(ValueError, match=r"attention_mask has shape .*expected rank 2 or 3 or 4"):
        attends(x, attention_mask=np.ones(T, bool))
    with pytest.raises(ValueError, match=r"A state, the second argument, .* or CrossAttention"):
        attends(x, x)

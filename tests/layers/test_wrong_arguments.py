"""Arguments that cannot be meant are refused by name, with what was expected."""

import itertools

import numpy as np
import pytest

from keras_seq import layers
from keras_seq.layers import (
    FeedForward,
    GatedFeedForward,
    LearnedPositions,
    MultiHeadSelfAttention,
    PositionalEncoding,
    PreNormResidual,
    RotaryPositions,
    SelectiveStateSpace,
    TransformerBlock,
)

B, T, D = 2, 5, 6
NO_SIZES = (0, -1, 2.5, "4")
SIZES = {  # arguments that are sizes, by class, with what else it needs
    **{kind: ({"units": 4}, ("units",)) for kind in ("SimpleRNN", "GRU", "LSTM", "LayerNormLSTM", "MinGRU", "MinLSTM")},
    "SelectiveStateSpace": ({}, ("state_dim", "expand", "kernel_size", "dt_rank")),
    "CausalDepthwiseConv1D": ({}, ("kernel_size",)),
    "FeedForward": ({"feed_forward_dim": 4}, ("feed_forward_dim",)),
    "GatedFeedForward": ({"feed_forward_dim": 4}, ("feed_forward_dim",)),
    "MultiHeadSelfAttention": ({"num_heads": 2}, ("num_heads", "key_dim", "value_dim", "sliding_window")),
    "TransformerBlock": ({"num_heads": 2, "feed_forward_dim": 12}, ("num_heads", "feed_forward_dim", "sliding_window")),
    "LearnedPositions": ({"length": 4}, ("length",)),
}


@pytest.mark.parametrize("name", SIZES)
def test_what_is_no_size_is_refused(name):
    others, sizes = SIZES[name]
    for size, value in itertools.product(sizes, NO_SIZES):
        with pytest.raises(ValueError, match=f"{size}={value!r}; expected an integer of at least"):
            getattr(layers, name)(**others | {size: value})


@pytest.mark.parametrize("name", ["SimpleRNN", "GRU", "LSTM", "LayerNormLSTM"])
def test_a_rate_is_from_0_to_below_1(name):
    for rate, value in itertools.product(("dropout", "recurrent_dropout"), (-0.1, 1.0)):
        with pytest.raises(ValueError, match=f"{rate}={value!r};"):
            getattr(layers, name)(4, **{rate: value})


def dense():
    return layers.Dense(D)


REFUSED = [  # what is made, and words of the message
    (lambda: SelectiveStateSpace(kernel_size=1), "kernel_size=1; expected at least 2"),
    (lambda: layers.CausalDepthwiseConv1D(1), "kernel_size=1", "at least 2"),
    (lambda: layers.Mamba2(4, num_groups=3), "num_groups=3; expected a divisor of num_heads=4"),
    (lambda: layers.MLSTM(2, head_dim=6), "head_dim=6; expected a multiple of qkv_block_size=4"),
    (lambda: layers.SLSTM(4).build((None, None, D)), "num_heads=4; expected a divisor of the width 6"),
    (lambda: layers.RGLRU(4).build((None, None, D)), "num_heads=4; expected a divisor of the width 6"),
    (lambda: layers.RWKV7TimeMix(2, value_residual=True)(np.ones((B, T, D), "float32")), "first_value is missing"),
    (lambda: FeedForward(4, dropout=-0.5), "dropout=-0.5", "at least 0"),
    (lambda: FeedForward(4, activation="swish-ish"), "activation", "swish-ish"),
    (lambda: FeedForward(4).build((3,)), "inputs has shape (3,)", "[B, ..., D]"),
    (lambda: GatedFeedForward(4).build((3, None)), "inputs has shape", "D known"),
    (lambda: MultiHeadSelfAttention(4, num_key_value_heads=3), "num_key_value_heads", "3", "divisor", "4"),
    (lambda: MultiHeadSelfAttention(2, dropout=-0.1), "dropout", "-0.1", "at least 0"),
    (lambda: MultiHeadSelfAttention(2, dropout=1.0), "dropout", "1.0", "less than 1"),
    (lambda: MultiHeadSelfAttention(2, positions="rotary"), "positions", "'rotary'", "RotaryPositions"),
    (lambda: MultiHeadSelfAttention(2, kernel_initializer="glorot"), "glorot"),
    (lambda: MultiHeadSelfAttention(4).build((None, None, D)), "num_heads=4; expected a divisor of the width D=6"),
    (lambda: MultiHeadSelfAttention(2).build((None, None, None)), "D known"),
    (
        lambda: MultiHeadSelfAttention(2, key_dim=3, positions=RotaryPositions()).build((None, None, D)),
        "key_dim=3; expected an even number",
    ),
    (lambda: TransformerBlock(2, 12, normalization="batch"), "normalization='batch'", "'layer'", "'rms'"),
    (lambda: TransformerBlock(2, 12, activation="swigloo"), "activation", "swigloo"),
    (lambda: TransformerBlock(2, 12, dropout=1.5), "dropout=1.5", "less than 1"),
    (lambda: TransformerBlock(2, 12, positions=7), "positions=7", "RotaryPositions"),
    (lambda: TransformerBlock(2, 12, num_key_value_heads=3), "num_key_value_heads=3", "divisor"),
    (
        lambda: PreNormResidual([dense()], normalization="batch"),
        "normalization='batch'; expected one of 'layer', 'rms'",
    ),
    (lambda: PreNormResidual([dense()], dropout=1.0), "dropout=1.0; expected a number of at least 0 and less than 1"),
    (lambda: RotaryPositions(base=1.0), "base=1.0", "greater than 1"),
    (lambda: RotaryPositions(base="big"), "base='big'", "number"),
    (lambda: RotaryPositions(partial_rotary_factor=1.5), "partial_rotary_factor=1.5", "at most 1"),
    (lambda: RotaryPositions(partial_rotary_factor=0.0), "partial_rotary_factor=0.0"),
    (lambda: RotaryPositions(partial_rotary_factor=0.5).validate_key_dim(10), "key_dim=10, of which 5", "even number"),
    (lambda: RotaryPositions(scaling="magic"), "scaling='magic'", "'linear'", "'yarn'"),
    (lambda: RotaryPositions(scaling="linear", scaling_factor=0.5), "scaling_factor=0.5", "at least 1"),
    (lambda: RotaryPositions(scaling_factor=2.0), "scaling_factor=2.0", "scaling=None"),
    (lambda: RotaryPositions(scaling="yarn", scaling_factor=2.0), "original_context_length=None", "an integer"),
    (lambda: RotaryPositions(scaling="ntk", scaling_factor=2.0).validate_key_dim(2), "key_dim=2", "at least 4"),
    (lambda: RotaryPositions().validate_key_dim(5), "key_dim=5", "even"),
    (lambda: PositionalEncoding(base=-1), "base=-1", "greater than 0"),
    (lambda: PositionalEncoding().build((None, 3)), "inputs has shape (None, 3)", "[B, T, D]"),
    (lambda: LearnedPositions(3).build((None, 3, None)), "inputs has shape", "D known"),
    (lambda: PositionalEncoding()(np.ones((B, T, D)), mask=np.ones(4)), "mask has shape (4,)", "rank 2"),
]


@pytest.mark.parametrize(("make", "words"), [(make, words) for make, *words in REFUSED])
def test_what_does_not_go_together_is_refused(make, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are the match
        make()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_what_is_asked_of_a_call_or_a_layer_of_another_kind_is_refused():
    attends, x = MultiHeadSelfAttention(2), np.ones((B, T, D), "float32")
    with pytest.raises(ValueError, match=r"attention_mask has shape .*expected rank 2 or 3 or 4"):
        attends(x, attention_mask=np.ones(T, bool))
    with pytest.raises(ValueError, match=r"A state, the second argument, .* or CrossAttention"):
        attends(x, x)

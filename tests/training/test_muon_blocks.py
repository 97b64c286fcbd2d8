"""The rule of what Muon orthogonalizes: the weights of two axes that are not one matrix, by layer."""

import keras
import pytest

from keras_seq import layers
from keras_seq.layers.dense import BlockDiagonalDense
from keras_seq.training.muon import muon_blocks

pytestmark = pytest.mark.any_backend
WIDTH = 24
EXPECTED = {
    "SimpleRNN": (lambda: layers.SimpleRNN(5), {}),
    "GRU": (lambda: layers.GRU(5), {"kernel": 3, "recurrent_kernel": 3, "bias": 0}),
    "LSTM": (lambda: layers.LSTM(5), {"kernel": 4, "recurrent_kernel": 4}),
    "LayerNormLSTM": (lambda: layers.LayerNormLSTM(5), {"kernel": 4, "recurrent_kernel": 4}),
    "MinGRU": (lambda: layers.MinGRU(5), {"kernel": 2}),
    "MinLSTM": (lambda: layers.MinLSTM(5), {"kernel": 3}),
    "a subclass": (lambda: type("Mine", (layers.LSTM,), {})(5), {"kernel": 4, "recurrent_kernel": 4}),
    "CausalDepthwiseConv1D": (lambda: layers.CausalDepthwiseConv1D(4), {"kernel": 0}),
    "SelectiveStateSpace": (
        lambda: layers.SelectiveStateSpace(3),
        {"input/kernel": 2, "convolution/kernel": 0, "log_a": 0},
    ),
    "Mamba2": (
        lambda: layers.Mamba2(2, head_dim=3, state_dim=4),
        {"input/kernel": 2, "bc/kernel": 2, "convolution/kernel": 0},
    ),
    "MLSTM, small blocks": (
        lambda: layers.MLSTM(2),
        {"input/kernel": 2, "gates_kernel": 0, "convolution/kernel": 0}
        | dict.fromkeys(("query/kernel", "key/kernel", "value/kernel"), 0),
    ),
    "SLSTM, small blocks": (
        lambda: layers.SLSTM(3),
        {"convolution/kernel": 0, "recurrent_kernel": 0}
        | {f"{name}/kernel": 0 for name in ("input_gate", "forget_gate", "candidate", "output_gate")},
    ),
    "SLSTM": (
        lambda: layers.SLSTM(2),
        {"convolution/kernel": 0, "recurrent_kernel": 8}
        | {f"{name}/kernel": 2 for name in ("input_gate", "forget_gate", "candidate", "output_gate")},
    ),
    "BlockDiagonalDense": (lambda: BlockDiagonalDense(2), {"kernel": 2}),
    "RWKV7TimeMix": (lambda: layers.RWKV7TimeMix(2), {"bonus": 0}),
    "GriffinRecurrentBlock": (
        lambda: layers.GriffinRecurrentBlock(2),
        {"convolution/kernel": 0, "rg_lru/recurrence_gate/kernel": 2, "rg_lru/input_gate/kernel": 2},
    ),
    "MultiHeadSelfAttention": (lambda: layers.MultiHeadSelfAttention(2), {}),
    "Keras's LSTM, of which nothing is known": (lambda: keras.layers.LSTM(5), {}),
    "Keras's GRU, of whose bias the name is known": (lambda: keras.layers.GRU(5), {"gru_cell/bias": 0}),
    "CRF": (lambda: layers.CRF(), {"transitions": 0}),
    "positions": (lambda: layers.LearnedPositions(7), {"embeddings": 0}),
}


@pytest.mark.parametrize(("make", "expected"), EXPECTED.values(), ids=EXPECTED)
def test_one_matrix_unless_the_rule_says_otherwise(make, expected):
    layer = make()
    layer.build((None, None, WIDTH))
    got = {v.path.partition("/")[2]: muon_blocks(v) for v in layer.trainable_variables if len(v.shape) == 2}
    assert {path: blocks for path, blocks in got.items() if blocks != 1} == expected


def test_an_addition_is_no_matrix_and_a_weight_may_say_more_itself():
    layer = layers.LSTM(5)
    layer.build((None, None, WIDTH))
    layer.enable_lora(2)
    assert [muon_blocks(v) for v in layer.trainable_variables if "lora" in v.name] == [0] * 4
    weight = keras.Variable([[1.0, 2.0]], name="mine")
    assert muon_blocks(weight) == 1
    weight.muon_blocks = 2
    assert muon_blocks(weight) == 2

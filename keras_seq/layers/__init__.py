"""Layers for sequences, written with `keras` and `keras.ops` only, so that they run on every Keras backend."""

from keras_seq.layers.alibi import AlibiPositions
from keras_seq.layers.bidirectional import Bidirectional
from keras_seq.layers.causal_convolution import CausalDepthwiseConv1D
from keras_seq.layers.cross_attention import CrossAttention
from keras_seq.layers.dense import Dense
from keras_seq.layers.explicit_state import ExplicitState
from keras_seq.layers.feed_forward import FeedForward, GatedFeedForward
from keras_seq.layers.gated_delta_net import GatedDeltaNet
from keras_seq.layers.gated_linear_attention import GatedLinearAttention
from keras_seq.layers.gru import GRU
from keras_seq.layers.layer_norm_lstm import LayerNormLSTM
from keras_seq.layers.lstm import LSTM
from keras_seq.layers.mamba2 import Mamba2
from keras_seq.layers.min_rnn import MinGRU, MinLSTM
from keras_seq.layers.mlstm import MLSTM
from keras_seq.layers.normalization import LayerNormalization, RMSNormalization, ZeroCenteredRMSNormalization
from keras_seq.layers.positions import LearnedPositions, PositionalEncoding
from keras_seq.layers.relative_positions import RelativePositions
from keras_seq.layers.residual import PreNormResidual
from keras_seq.layers.rg_lru import RGLRU, GriffinRecurrentBlock
from keras_seq.layers.rotary import RotaryPositions
from keras_seq.layers.rwkv7 import RWKV7Blocks, RWKV7ChannelMix
from keras_seq.layers.rwkv7_time_mix import RWKV7TimeMix
from keras_seq.layers.segments import SegmentEmbedding
from keras_seq.layers.selective_state_space import SelectiveStateSpace
from keras_seq.layers.self_attention import MultiHeadSelfAttention
from keras_seq.layers.simple_rnn import SimpleRNN
from keras_seq.layers.slstm import SLSTM
from keras_seq.layers.stateful import Stateful
from keras_seq.layers.transformer_block import TransformerBlock
from keras_seq.ops.attention import attention

__all__ = [
    "GRU",
    "LSTM",
    "MLSTM",
    "RGLRU",
    "SLSTM",
    "AlibiPositions",
    "Bidirectional",
    "CausalDepthwiseConv1D",
    "CrossAttention",
    "Dense",
    "ExplicitState",
    "FeedForward",
    "GatedDeltaNet",
    "GatedFeedForward",
    "GatedLinearAttention",
    "GriffinRecurrentBlock",
    "LayerNormLSTM",
    "LayerNormalization",
    "LearnedPositions",
    "Mamba2",
    "MinGRU",
    "MinLSTM",
    "MultiHeadSelfAttention",
    "PositionalEncoding",
    "PreNormResidual",
    "RMSNormalization",
    "RWKV7Blocks",
    "RWKV7ChannelMix",
    "RWKV7TimeMix",
    "RelativePositions",
    "RotaryPositions",
    "SegmentEmbedding",
    "SelectiveStateSpace",
    "SimpleRNN",
    "Stateful",
    "TransformerBlock",
    "ZeroCenteredRMSNormalization",
    "attention",
]

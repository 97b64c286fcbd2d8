"""Layers for sequences, for every Keras backend: they own the weights and call the formulas of `keras_seq.ops`."""

from keras_seq.layers.attention.multi_head_attention import CrossAttention
from keras_seq.layers.attention.positions import LearnedPositions, PositionalEncoding, SegmentEmbedding
from keras_seq.layers.attention.relative_positions import (
    AlibiPositions,
    BucketedPositions,
    ForgettingPositions,
    RelativePositions,
    RotaryPositions,
)
from keras_seq.layers.attention.self_attention import MultiHeadSelfAttention
from keras_seq.layers.attention.transformer_block import TransformerBlock
from keras_seq.layers.base.state import ExplicitState
from keras_seq.layers.crf import CRF, ViterbiDecoder
from keras_seq.layers.dense import Dense, FeedForward, GatedFeedForward
from keras_seq.layers.linear.linear_attention import GatedDeltaNet, GatedLinearAttention, KimiDeltaAttention
from keras_seq.layers.linear.mamba import Mamba2, SelectiveStateSpace
from keras_seq.layers.linear.mixer import CausalDepthwiseConv1D
from keras_seq.layers.linear.mlstm import MLSTM
from keras_seq.layers.linear.rg_lru import RGLRU, GriffinRecurrentBlock
from keras_seq.layers.linear.rwkv7 import RWKV7Blocks, RWKV7ChannelMix
from keras_seq.layers.linear.rwkv7_time_mix import RWKV7TimeMix
from keras_seq.layers.normalization import LayerNormalization, RMSNormalization, ZeroCenteredRMSNormalization
from keras_seq.layers.recurrent.gru import GRU
from keras_seq.layers.recurrent.lstm import LSTM, LayerNormLSTM
from keras_seq.layers.recurrent.min_rnn import MinGRU, MinLSTM
from keras_seq.layers.recurrent.simple_rnn import SimpleRNN
from keras_seq.layers.recurrent.slstm import SLSTM
from keras_seq.layers.recurrent.wrappers import Bidirectional, Stateful
from keras_seq.layers.residual import PreNormResidual
from keras_seq.ops.attention import attention
from keras_seq.ops.crf import crf_log_likelihood, crf_marginals, viterbi

__all__ = [
    "CRF",
    "GRU",
    "LSTM",
    "MLSTM",
    "RGLRU",
    "SLSTM",
    "AlibiPositions",
    "Bidirectional",
    "BucketedPositions",
    "CausalDepthwiseConv1D",
    "CrossAttention",
    "Dense",
    "ExplicitState",
    "FeedForward",
    "ForgettingPositions",
    "GatedDeltaNet",
    "GatedFeedForward",
    "GatedLinearAttention",
    "GriffinRecurrentBlock",
    "KimiDeltaAttention",
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
    "ViterbiDecoder",
    "ZeroCenteredRMSNormalization",
    "attention",
    "crf_log_likelihood",
    "crf_marginals",
    "viterbi",
]

"""Layers for sequences. They use `keras` and `keras.ops` only, so they run on every Keras backend."""

from keras_seq.layers.alibi import AlibiPositions
from keras_seq.layers.attention import attention
from keras_seq.layers.blocks import TransformerBlock
from keras_seq.layers.carry import Carry
from keras_seq.layers.cross_attention import CrossAttention
from keras_seq.layers.feed_forward import FeedForward, GatedFeedForward
from keras_seq.layers.positions import LearnedPositions, PositionalEncoding
from keras_seq.layers.recurrent import LSTM
from keras_seq.layers.rotary import RotaryPositions
from keras_seq.layers.self_attention import MultiHeadSelfAttention

__all__ = [
    "LSTM",
    "Carry",
    "attention",
    "MultiHeadSelfAttention",
    "CrossAttention",
    "PositionalEncoding",
    "LearnedPositions",
    "RotaryPositions",
    "AlibiPositions",
    "FeedForward",
    "GatedFeedForward",
    "TransformerBlock",
]

"""Show in TensorBoard what a sequence model does, with Keras callbacks; docs/tensorboard.md has an example of each."""

from keras_seq.callbacks.attention_maps import AttentionMaps
from keras_seq.callbacks.diagnostic import Diagnostic
from keras_seq.callbacks.embedding_projector import EmbeddingProjector
from keras_seq.callbacks.gate_saturation import GateSaturation
from keras_seq.callbacks.loss_by_position import LossByPosition
from keras_seq.callbacks.profiler import Profiler
from keras_seq.callbacks.text_samples import TextSamples
from keras_seq.tracking.tensorboard import TokenTensorBoard

__all__ = [
    "AttentionMaps",
    "Diagnostic",
    "EmbeddingProjector",
    "GateSaturation",
    "LossByPosition",
    "Profiler",
    "TextSamples",
    "TokenTensorBoard",
]

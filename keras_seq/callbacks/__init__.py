"""Show in TensorBoard what a sequence model does, in your own `fit` too; docs/tensorboard.md has an example of each.

The callbacks by which runs are validated, stopped and saved are in training/callbacks.py.
"""

from keras_seq.callbacks.attention_maps import AttentionMaps
from keras_seq.callbacks.diagnostics import Diagnostic, LossByPosition, Profiler, TextSamples
from keras_seq.callbacks.embedding_projector import EmbeddingProjector
from keras_seq.callbacks.gate_saturation import GateSaturation
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

"""Keras callbacks that show in TensorBoard what a sequence model does; docs/tensorboard.md has an example of each."""

from keras_seq.callbacks.attention_maps import AttentionMaps
from keras_seq.callbacks.gate_saturation import GateSaturation
from keras_seq.callbacks.look import Look
from keras_seq.callbacks.loss_by_position import LossByPosition
from keras_seq.callbacks.profile import Profile
from keras_seq.callbacks.projector import Projector
from keras_seq.callbacks.text_samples import TextSamples
from keras_seq.training.tensorboard import TokenTensorBoard, write_layout, write_table

__all__ = [
    "AttentionMaps",
    "GateSaturation",
    "Look",
    "LossByPosition",
    "Profile",
    "Projector",
    "TextSamples",
    "TokenTensorBoard",
    "write_layout",
    "write_table",
]

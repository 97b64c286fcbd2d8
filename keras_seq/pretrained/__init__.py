"""Pretrained weights in and out: Hugging Face folders of `FAMILIES`, from GPT-2 to T5, Qwen3.5 and Mamba."""

from keras_seq.pretrained.families import FAMILIES
from keras_seq.pretrained.folder_files import PretrainedError
from keras_seq.pretrained.load import Pretrained, download, load
from keras_seq.pretrained.save import save

__all__ = ["FAMILIES", "Pretrained", "PretrainedError", "download", "load", "save"]

"""List the families of pretrained models by their `model_type`."""

from keras_seq.pretrained.bert import BERT
from keras_seq.pretrained.gpt2 import GPT2
from keras_seq.pretrained.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from keras_seq.pretrained.mamba import MAMBA

FAMILIES = {family.model_type: family for family in (GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, BERT, MAMBA)}
"""Families by their `model_type` in config.json: the one place to register a family."""

"""List the families of pretrained models by their `model_type`."""

from keras_seq.pretrained.bert import BERT
from keras_seq.pretrained.gpt2 import GPT2
from keras_seq.pretrained.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from keras_seq.pretrained.mamba import MAMBA
from keras_seq.pretrained.mamba2 import MAMBA2
from keras_seq.pretrained.recurrent_gemma import RECURRENT_GEMMA

FAMILIES = {
    family.model_type: family for family in (GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, BERT, MAMBA, MAMBA2, RECURRENT_GEMMA)
}
"""Families by their `model_type` in config.json: the one place to register a family."""

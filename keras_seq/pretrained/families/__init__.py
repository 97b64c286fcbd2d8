"""List the families of pretrained models by their `model_type`."""

from keras_seq.pretrained.families.bert import BERT
from keras_seq.pretrained.families.gpt2 import GPT2
from keras_seq.pretrained.families.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from keras_seq.pretrained.families.mamba import MAMBA, MAMBA2
from keras_seq.pretrained.families.qwen3_5 import QWEN3_5, QWEN3_NEXT
from keras_seq.pretrained.families.recurrent_gemma import RECURRENT_GEMMA

FAMILIES = {
    family.model_type: family
    for family in (GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, QWEN3_5, QWEN3_NEXT, BERT, MAMBA, MAMBA2, RECURRENT_GEMMA)
}
"""Families by their `model_type` in config.json: the one place to register a family."""

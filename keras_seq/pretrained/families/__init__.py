"""List the families of pretrained models by their `model_type`."""

from keras_seq.pretrained.families.bert import BERT
from keras_seq.pretrained.families.gpt2 import GPT2
from keras_seq.pretrained.families.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from keras_seq.pretrained.families.mamba import MAMBA, MAMBA2
from keras_seq.pretrained.families.modernbert import MODERNBERT
from keras_seq.pretrained.families.recurrent_gemma import RECURRENT_GEMMA
from keras_seq.pretrained.families.t5 import T5

FAMILIES = {
    family.model_type: family
    for family in (GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, BERT, MODERNBERT, MAMBA, MAMBA2, RECURRENT_GEMMA, T5)
}
"""Families by their `model_type` in config.json: the one place to register a family."""

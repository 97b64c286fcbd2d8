"""List the families of pretrained models by their `model_type`."""

from keras_seq.pretrained.families.bert import BERT
from keras_seq.pretrained.families.gpt2 import GPT2
from keras_seq.pretrained.families.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from keras_seq.pretrained.families.mamba import MAMBA, MAMBA2
from keras_seq.pretrained.families.modernbert import MODERNBERT
from keras_seq.pretrained.families.qwen3_5 import QWEN3_5, QWEN3_NEXT
from keras_seq.pretrained.families.recurrent_gemma import RECURRENT_GEMMA
from keras_seq.pretrained.families.t5 import T5

_ALL = GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, QWEN3_5, QWEN3_NEXT, BERT, MODERNBERT, MAMBA, MAMBA2, RECURRENT_GEMMA, T5
FAMILIES = {family.model_type: family for family in _ALL}
"""Families by their `model_type` in config.json: the one place to register a family."""

_OF_IMAGES = (
    "architectures model_type text_config vision_config image_token_id video_token_id vision_start_token_id "
    "vision_end_token_id"
)
AROUND_TEXT = {"qwen3_5": frozenset(_OF_IMAGES.split())}
"""Models of images by their `model_type`, and the keys of config.json that do not concern the `text_config` inside."""

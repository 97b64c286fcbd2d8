"""Models: a config is a frozen dataclass, and `config.build_model(vocabulary_size)` makes the Keras model.

`MODELS` holds the registered configs by name (`keras_seq/models/registry.py`). Those in `LANGUAGE_MODELS` build a
`LanguageModel`, which predicts the next id. The others read whole sequences: `bilstm` tags each id, `bert` encodes a
sequence, `seq2seq` maps it to another one. `Ensemble` averages the probabilities of several language models.
"""

from keras_seq.models.bert import BertConfig
from keras_seq.models.bilstm import BiLSTMConfig
from keras_seq.models.causality import assert_causal
from keras_seq.models.ensemble import Ensemble
from keras_seq.models.gpt2 import GPT2Config
from keras_seq.models.heads import masked_lm, text_classifier, token_classifier
from keras_seq.models.hybrid import HybridConfig
from keras_seq.models.language_model import LanguageModel
from keras_seq.models.language_model_config import LanguageModelConfig
from keras_seq.models.linear_recurrent import GatedDeltaNetConfig, GatedLinearAttentionConfig, HawkConfig, Mamba2Config
from keras_seq.models.llama import LlamaConfig
from keras_seq.models.mamba import MambaConfig
from keras_seq.models.min_rnn import MinGRUConfig, MinLSTMConfig
from keras_seq.models.published_configs import PUBLISHED_CONFIGS
from keras_seq.models.quantization import quantization_report
from keras_seq.models.recurrent_gemma import RecurrentGemmaConfig
from keras_seq.models.registry import MODELS
from keras_seq.models.rnn import GRUConfig, LSTMConfig, RNNConfig
from keras_seq.models.rwkv7 import RWKV7Config
from keras_seq.models.seq2seq import EncoderDecoder, Seq2SeqConfig
from keras_seq.models.transformer import TransformerConfig
from keras_seq.models.xlstm import XLSTMConfig

LANGUAGE_MODELS = tuple(name for name, config in MODELS.items() if issubclass(config, LanguageModelConfig))
"""Names of the models that predict the next token."""

__all__ = [
    "LANGUAGE_MODELS",
    "MODELS",
    "PUBLISHED_CONFIGS",
    "BertConfig",
    "BiLSTMConfig",
    "EncoderDecoder",
    "Ensemble",
    "GPT2Config",
    "GRUConfig",
    "GatedDeltaNetConfig",
    "GatedLinearAttentionConfig",
    "HawkConfig",
    "HybridConfig",
    "LSTMConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "LlamaConfig",
    "Mamba2Config",
    "MambaConfig",
    "MinGRUConfig",
    "MinLSTMConfig",
    "RNNConfig",
    "RWKV7Config",
    "RecurrentGemmaConfig",
    "Seq2SeqConfig",
    "TransformerConfig",
    "XLSTMConfig",
    "assert_causal",
    "masked_lm",
    "quantization_report",
    "text_classifier",
    "token_classifier",
]

"""Models: a config is a frozen dataclass, and `config.build_model(vocabulary_size)` makes the Keras model.

`MODELS` holds the registered configs by name (`keras_seq/models/config.py`). Those in `LANGUAGE_MODELS` build a
`LanguageModel`, which predicts the next id. The others read whole sequences: `bilstm` tags each id, `bert` and
`modernbert` encode a sequence, `seq2seq` and `t5` map it to another one. `Ensemble` averages the probabilities of
several language models, `ngram_model` makes one of counted n-grams, and `NGramResidual` adds what they do not know.
"""

from keras_seq.models.config import MODELS, LanguageModelConfig
from keras_seq.models.ensemble import Ensemble
from keras_seq.models.exported_model import LiteRTModel, OnnxModel
from keras_seq.models.families import PUBLISHED_CONFIGS
from keras_seq.models.families.encoders import BertConfig, BiLSTMConfig, masked_lm, text_classifier, token_classifier
from keras_seq.models.families.hybrid import HybridConfig, Qwen35Config, RecurrentGemmaConfig
from keras_seq.models.families.linear import (
    GatedDeltaNetConfig,
    GatedDeltaProductConfig,
    GatedLinearAttentionConfig,
    HawkConfig,
    KimiDeltaAttentionConfig,
    Mamba2Config,
    MambaConfig,
    RWKV7Config,
)
from keras_seq.models.families.modernbert import ModernBertConfig
from keras_seq.models.families.recurrent import (
    GRUConfig,
    LSTMConfig,
    MinGRUConfig,
    MinLSTMConfig,
    RNNConfig,
    XLSTMConfig,
)
from keras_seq.models.families.seq2seq import EncoderDecoder, Seq2SeqConfig
from keras_seq.models.families.t5 import T5Config
from keras_seq.models.families.transformer import GPT2Config, LlamaConfig, TransformerConfig
from keras_seq.models.forecaster import Forecaster
from keras_seq.models.language_model import LanguageModel
from keras_seq.models.laws import assert_causal
from keras_seq.models.ngrams import NGramResidual, ngram_model
from keras_seq.models.quantization import quantization_report

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
    "Forecaster",
    "GPT2Config",
    "GRUConfig",
    "GatedDeltaNetConfig",
    "GatedDeltaProductConfig",
    "GatedLinearAttentionConfig",
    "HawkConfig",
    "HybridConfig",
    "KimiDeltaAttentionConfig",
    "LSTMConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "LiteRTModel",
    "LlamaConfig",
    "Mamba2Config",
    "MambaConfig",
    "MinGRUConfig",
    "MinLSTMConfig",
    "ModernBertConfig",
    "NGramResidual",
    "OnnxModel",
    "Qwen35Config",
    "RNNConfig",
    "RWKV7Config",
    "RecurrentGemmaConfig",
    "Seq2SeqConfig",
    "T5Config",
    "TransformerConfig",
    "XLSTMConfig",
    "assert_causal",
    "masked_lm",
    "ngram_model",
    "quantization_report",
    "text_classifier",
    "token_classifier",
]

"""Models: frozen dataclasses with `build(vocabulary_size)`. `MODELS` is the one place to register.

Those in `LANGUAGE_MODELS` build a `LanguageModel`, which predicts the next id. The others see all of a sequence:
`bilstm` tags it, `encoder` represents it, and `seq2seq` turns it into another one.
`Average` makes one language model of several.
"""

from keras_seq.models.bert import BertConfig
from keras_seq.models.bilstm import BiLSTMConfig
from keras_seq.models.causality import assert_causal
from keras_seq.models.ensemble import Ensemble
from keras_seq.models.gpt2 import GPT2Config
from keras_seq.models.heads import masked_lm, text_classifier, token_classifier
from keras_seq.models.language_model import LanguageModel
from keras_seq.models.llama import LlamaConfig
from keras_seq.models.min_rnn import MambaConfig, MinGRUConfig, MinLSTMConfig
from keras_seq.models.published_configs import PUBLISHED_CONFIGS
from keras_seq.models.rnn import GRUConfig, LSTMConfig, RNNConfig
from keras_seq.models.seq2seq import EncoderDecoder, Seq2SeqConfig
from keras_seq.models.transformer import TransformerConfig

MODELS = {
    "rnn": RNNConfig,
    "gru": GRUConfig,
    "lstm": LSTMConfig,
    "bilstm": BiLSTMConfig,
    "mingru": MinGRUConfig,
    "minlstm": MinLSTMConfig,
    "mamba": MambaConfig,
    "transformer": TransformerConfig,
    "gpt2": GPT2Config,
    "llama": LlamaConfig,
    "encoder": BertConfig,
    "seq2seq": Seq2SeqConfig,
}
LANGUAGE_MODELS = ("rnn", "gru", "lstm", "mingru", "minlstm", "mamba", "transformer", "gpt2", "llama")

__all__ = [
    "GPT2Config",
    "GRUConfig",
    "LANGUAGE_MODELS",
    "LSTMConfig",
    "MODELS",
    "PUBLISHED_CONFIGS",
    "RNNConfig",
    "Ensemble",
    "BiLSTMConfig",
    "BertConfig",
    "EncoderDecoder",
    "LanguageModel",
    "MambaConfig",
    "MinGRUConfig",
    "MinLSTMConfig",
    "LlamaConfig",
    "Seq2SeqConfig",
    "TransformerConfig",
    "assert_causal",
    "text_classifier",
    "masked_lm",
    "token_classifier",
]

"""Models: frozen dataclasses with `build(vocabulary_size)`. `MODELS` is the one place to register.

All but `bilstm`, which tags, build a `LanguageModel`.
"""

from keras_seq.models.bilstm import BiLSTM
from keras_seq.models.causality import assert_causal
from keras_seq.models.language_model import LanguageModel
from keras_seq.models.parallel import Mamba, MinGRU, MinLSTM
from keras_seq.models.recurrent import GRU, LSTM, RNN
from keras_seq.models.transformer import Transformer

MODELS = {
    "rnn": RNN,
    "gru": GRU,
    "lstm": LSTM,
    "bilstm": BiLSTM,
    "mingru": MinGRU,
    "minlstm": MinLSTM,
    "mamba": Mamba,
    "transformer": Transformer,
}
TAGGERS = frozenset({"bilstm"})

__all__ = [
    "GRU",
    "LSTM",
    "MODELS",
    "RNN",
    "TAGGERS",
    "BiLSTM",
    "LanguageModel",
    "Mamba",
    "MinGRU",
    "MinLSTM",
    "Transformer",
    "assert_causal",
]

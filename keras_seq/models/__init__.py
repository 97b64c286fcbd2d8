"""Models: frozen dataclasses with `build(vocabulary_size)`. `MODELS` is the one place to register.

Those in `LANGUAGE_MODELS` build a `LanguageModel`, which predicts the next id. The others see all of a sequence:
`bilstm` tags it, `encoder` represents it, and `seq2seq` turns it into another one.
`Average` makes one language model of several.
"""

from keras_seq.models.average import Average
from keras_seq.models.bilstm import BiLSTM
from keras_seq.models.causality import assert_causal
from keras_seq.models.encoder import Encoder
from keras_seq.models.gpt import GPT
from keras_seq.models.heads import classifier, masked_language_model, tagger
from keras_seq.models.language_model import LanguageModel
from keras_seq.models.modern import Modern
from keras_seq.models.parallel import Mamba, MinGRU, MinLSTM
from keras_seq.models.presets import PRESETS
from keras_seq.models.recurrent import GRU, LSTM, RNN
from keras_seq.models.seq2seq import EncoderDecoder, Seq2Seq
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
    "gpt": GPT,
    "modern": Modern,
    "encoder": Encoder,
    "seq2seq": Seq2Seq,
}
LANGUAGE_MODELS = ("rnn", "gru", "lstm", "mingru", "minlstm", "mamba", "transformer", "gpt", "modern")

__all__ = [
    "GPT",
    "GRU",
    "LANGUAGE_MODELS",
    "LSTM",
    "MODELS",
    "PRESETS",
    "RNN",
    "Average",
    "BiLSTM",
    "Encoder",
    "EncoderDecoder",
    "LanguageModel",
    "Mamba",
    "MinGRU",
    "MinLSTM",
    "Modern",
    "Seq2Seq",
    "Transformer",
    "assert_causal",
    "classifier",
    "masked_language_model",
    "tagger",
]

"""Models: frozen dataclasses with `build(vocabulary_size) -> LanguageModel`. `MODELS` is the one place to register."""

from keras_seq.models.language_model import LanguageModel
from keras_seq.models.lstm import LSTM
from keras_seq.models.transformer import Transformer

MODELS = {"lstm": LSTM, "transformer": Transformer}

__all__ = ["LSTM", "MODELS", "LanguageModel", "Transformer"]

"""Text to ids to batches."""

from keras_seq.text.characters import UnknownCharacterError, VocabularyError
from keras_seq.text.corpus import Corpus, CorpusError, load_corpus
from keras_seq.text.generator import GeneratorWindows
from keras_seq.text.vocabulary import Vocabulary
from keras_seq.text.windows import Blocks, Lanes, RandomCrops, Windows

__all__ = [
    "Corpus",
    "CorpusError",
    "load_corpus",
    "Vocabulary",
    "VocabularyError",
    "UnknownCharacterError",
    "Windows",
    "Lanes",
    "RandomCrops",
    "Blocks",
    "GeneratorWindows",
]

"""Text to ids to batches."""

from keras_seq.text import dates, respace
from keras_seq.text.characters import UnknownCharacterError, VocabularyError
from keras_seq.text.compressors import COMPRESSORS, compressed_bits
from keras_seq.text.corpus import Corpus, CorpusError, load_corpus
from keras_seq.text.examples import Examples
from keras_seq.text.generator import GeneratorWindows
from keras_seq.text.grammar import Grammar, brackets
from keras_seq.text.interface import Tokenizer
from keras_seq.text.markov import MarkovChain
from keras_seq.text.ngrams import NGrams
from keras_seq.text.overlap import verbatim_overlap
from keras_seq.text.pairs import SPECIALS
from keras_seq.text.reversal import Reversal
from keras_seq.text.shuffled import ShuffledBlocks
from keras_seq.text.subwords import BytePairs, WordPiece
from keras_seq.text.tokenizers import TOKENIZERS, load_tokenizer
from keras_seq.text.vocabulary import Vocabulary
from keras_seq.text.windows import Blocks, Lanes, RandomCrops, Windows
from keras_seq.text.words import Words, split_words

__all__ = [
    "Corpus",
    "CorpusError",
    "load_corpus",
    "Vocabulary",
    "VocabularyError",
    "UnknownCharacterError",
    "Tokenizer",
    "Words",
    "split_words",
    "WordPiece",
    "BytePairs",
    "SPECIALS",
    "TOKENIZERS",
    "load_tokenizer",
    "Windows",
    "Lanes",
    "RandomCrops",
    "Blocks",
    "ShuffledBlocks",
    "Examples",
    "Reversal",
    "dates",
    "respace",
    "GeneratorWindows",
    "NGrams",
    "MarkovChain",
    "Grammar",
    "brackets",
    "COMPRESSORS",
    "compressed_bits",
    "verbatim_overlap",
]

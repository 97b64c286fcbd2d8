"""Convert text to token ids and back: characters, words, WordPiece, byte-pair encoding; one interface."""

from keras_seq.tokenizers.base_tokenizer import Tokenizer
from keras_seq.tokenizers.character_tokenizer import CharacterTokenizer
from keras_seq.tokenizers.segment_packing import SPECIAL_TOKENS
from keras_seq.tokenizers.subword_tokenizers import BytePairTokenizer, WordPieceTokenizer
from keras_seq.tokenizers.text_errors import TokenizerError, UnknownCharacterError
from keras_seq.tokenizers.tokenizer_registry import TOKENIZERS, load_tokenizer
from keras_seq.tokenizers.word_tokenizer import WordTokenizer, split_words

__all__ = [
    "Tokenizer",
    "CharacterTokenizer",
    "SPECIAL_TOKENS",
    "BytePairTokenizer",
    "WordPieceTokenizer",
    "TokenizerError",
    "UnknownCharacterError",
    "TOKENIZERS",
    "load_tokenizer",
    "WordTokenizer",
    "split_words",
]

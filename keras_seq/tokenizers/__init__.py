"""Convert text to ids and back by characters, words, WordPiece or byte-pair encoding, through one interface."""

from keras_seq.tokenizers.base import Tokenizer, TokenizerError, UnknownCharacterError
from keras_seq.tokenizers.characters import CharacterTokenizer
from keras_seq.tokenizers.pretrained import PretrainedTokenizer
from keras_seq.tokenizers.registry import TOKENIZERS, document_token, load_tokenizer, tokenizer_from_config
from keras_seq.tokenizers.subwords import SPECIAL_TOKENS, BytePairTokenizer, WordPieceTokenizer
from keras_seq.tokenizers.words import WordTokenizer, split_words

__all__ = [
    "SPECIAL_TOKENS",
    "TOKENIZERS",
    "BytePairTokenizer",
    "CharacterTokenizer",
    "PretrainedTokenizer",
    "Tokenizer",
    "TokenizerError",
    "UnknownCharacterError",
    "WordPieceTokenizer",
    "WordTokenizer",
    "document_token",
    "load_tokenizer",
    "split_words",
    "tokenizer_from_config",
]

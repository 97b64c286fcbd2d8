"""Convert text to ids and back by characters, words, WordPiece or byte-pair encoding, through one interface."""

from keras_seq.tokenizers.base_tokenizer import Tokenizer
from keras_seq.tokenizers.character_tokenizer import CharacterTokenizer
from keras_seq.tokenizers.document_token import document_token
from keras_seq.tokenizers.pretrained_tokenizer import PretrainedTokenizer
from keras_seq.tokenizers.segment_packing import SPECIAL_TOKENS
from keras_seq.tokenizers.subword_tokenizers import BytePairTokenizer, WordPieceTokenizer
from keras_seq.tokenizers.text_errors import TokenizerError, UnknownCharacterError
from keras_seq.tokenizers.tokenizer_registry import TOKENIZERS, load_tokenizer
from keras_seq.tokenizers.word_tokenizer import WordTokenizer, split_words

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
]

"""Give the bytes that each token adds to a text, for what works on text and has to choose tokens."""

from tokenizers.pre_tokenizers import ByteLevel

from keras_seq.tokenizers.base_tokenizer import Tokenizer
from keras_seq.tokenizers.character_tokenizer import CharacterTokenizer
from keras_seq.tokenizers.segment_packing import SPECIAL_TOKENS
from keras_seq.tokenizers.subword_tokenizers import BytePairTokenizer
from keras_seq.tokenizers.text_errors import TokenizerError
from keras_seq.tokenizers.word_tokenizer import WordTokenizer


def token_bytes(tokenizer: Tokenizer) -> list[bytes | None]:
    r"""Return the UTF-8 bytes of each token; joined in order they are those of the text.

    Args:
        tokenizer: A tokenizer of characters, words or byte pairs.

    Returns:
        A list of V entries, None for special tokens, which stand for no text.

    Raises:
        TokenizerError: The tokenizer loses white space, as WordPiece does, so that tokens have no bytes of their own.

    >>> from keras_seq.tokenizers import CharacterTokenizer
    >>> token_bytes(CharacterTokenizer("aé"))
    [b'a', b'\xc3\xa9']
    """
    if isinstance(tokenizer, BytePairTokenizer):
        return [None if token in SPECIAL_TOKENS else _byte_level(token) for token in tokenizer.vocabulary]
    if isinstance(tokenizer, CharacterTokenizer | WordTokenizer):
        special = tokenizer.oov_token
        return [None if token == special else token.encode() for token in tokenizer.vocabulary]
    raise TokenizerError(
        f"{type(tokenizer).__name__} does not keep white space; expected one of characters, words or byte pairs."
    )


def _byte_level(token):
    return bytes(BYTES[character] for character in token)


def _byte_table():
    """Return the byte of each character of GPT-2's alphabet: printable bytes are themselves, others follow U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    assert table.keys() == {*ByteLevel.alphabet()}
    return table


BYTES = _byte_table()

"""Give the bytes that each token adds to a text, for what works on text and has to choose tokens."""

import json
import re

from tokenizers.pre_tokenizers import ByteLevel

from keras_seq.tokenizers.base_tokenizer import Tokenizer
from keras_seq.tokenizers.character_tokenizer import CharacterTokenizer
from keras_seq.tokenizers.pretrained_tokenizer import PretrainedTokenizer
from keras_seq.tokenizers.segment_packing import SPECIAL_TOKENS
from keras_seq.tokenizers.subword_tokenizers import BytePairTokenizer
from keras_seq.tokenizers.text_errors import TokenizerError
from keras_seq.tokenizers.word_tokenizer import WordTokenizer

OTHER_STEPS = [  # of a decoder, after the one that makes spaces; after Fuse, Strip concerns the ends of the text only
    [*bytes_first, *ends] for bytes_first in ([], ["ByteFallback"]) for ends in ([], ["Fuse"], ["Fuse", "Strip"])
]


def token_bytes(tokenizer: Tokenizer) -> list[bytes | None]:
    r"""Return the UTF-8 bytes of each token, which it adds to the text before it.

    Args:
        tokenizer: A tokenizer of characters, words or byte pairs, or a tokenizer.json that decodes by byte pairs
            (GPT-2's way) or by tokens in which `▁` is a space (SentencePiece's).

    Returns:
        A list of V entries, None for special tokens, which stand for no text.

    Raises:
        TokenizerError: Tokens have no bytes of their own, as WordPiece puts spaces between them.

    >>> from keras_seq.tokenizers import CharacterTokenizer
    >>> token_bytes(CharacterTokenizer("aé"))
    [b'a', b'\xc3\xa9']
    """
    if isinstance(tokenizer, BytePairTokenizer):
        return [None if token in SPECIAL_TOKENS else _byte_level(token) for token in tokenizer.vocabulary]
    if isinstance(tokenizer, CharacterTokenizer | WordTokenizer):
        special = tokenizer.oov_token
        return [None if token == special else token.encode() for token in tokenizer.vocabulary]
    if isinstance(tokenizer, PretrainedTokenizer):
        return _pretrained(tokenizer)
    raise TokenizerError(
        f"{type(tokenizer).__name__} does not keep white space; expected one of characters, words or byte pairs."
    )


def _pretrained(tokenizer):
    """Return the bytes by the decoder of a tokenizer.json: what it does to a token that is not the first of a text."""
    pipeline = json.loads(tokenizer.pipeline)
    decoder = pipeline.get("decoder") or {"type": None}
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        of_token = _byte_level
    elif _makes_spaces(steps):
        of_token = _metaspace_bytes if "ByteFallback" in kinds else _metaspace
    else:
        raise TokenizerError(
            f"The decoder of the tokenizer.json, {', '.join(map(str, kinds))}, does not give each token bytes of its "
            "own; expected ByteLevel, or one that makes ▁ a space."
        )
    special = {entry["content"] for entry in pipeline.get("added_tokens") or () if entry.get("special")}
    special.add(pipeline["model"].get("unk_token"))
    if isinstance(unknown := pipeline["model"].get("unk_id"), int):  # of a Unigram model
        special.add(tokenizer.vocabulary[unknown])
    names = tokenizer.token_names
    return [None if name is None or name in special else of_token(name) for name in names]


def _makes_spaces(steps):
    """Return whether ▁ becomes a space in every token, and what else there is concerns bytes and the ends of a text."""
    first, *others = steps
    replaces = first["type"] == "Replace" and (first.get("pattern"), first.get("content")) == ({"String": "▁"}, " ")
    metaspace = first["type"] == "Metaspace" and first.get("replacement", "▁") == "▁"
    others = [step["type"] for step in others]
    return (replaces or metaspace) and others in OTHER_STEPS


def _metaspace(token):
    return token.replace("▁", " ").encode()


def _metaspace_bytes(token):
    byte = re.fullmatch("<0x([0-9A-F]{2})>", token)
    return bytes([int(byte[1], 16)]) if byte else _metaspace(token)


def _byte_level(token):
    try:
        return bytes(BYTES[character] for character in token)
    except KeyError:  # an added token, which is decoded as it is
        return token.encode()


def _byte_table():
    """Return the byte of each character of GPT-2's alphabet: printable bytes are themselves, others follow U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    assert table.keys() == {*ByteLevel.alphabet()}
    return table


BYTES = _byte_table()

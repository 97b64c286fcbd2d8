"""Which characters each token stands for, pieces that joined are the text; and what cannot be seen."""

import itertools
import string

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, processors

from keras_seq.tokenizers import (
    BytePairTokenizer,
    CharacterTokenizer,
    PretrainedTokenizer,
    Tokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)
from keras_seq.tokenizers.base import first_token_characters, piece_ends, show_whitespace, token_offsets

TEXT = "to be or not to be"
BYTES = BytePairTokenizer.from_text(TEXT * 3)


def with_bos(trim_offsets=False):
    """Byte pairs that begin a text with <s>, as Llama 3 does."""
    pipeline = tokenizers.Tokenizer.from_str(BYTES.to_tokenizer_json())
    pipeline.add_special_tokens(["<s>"])
    template = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", pipeline.token_to_id("<s>"))])
    pipeline.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=trim_offsets), template])
    return PretrainedTokenizer(pipeline.to_str())


def sentence_piece():
    """SentencePiece's way: a space before a text, bytes for unknown characters."""
    tokens = ["<unk>", "\u2581", "b", "e", "t", "o", "\u2581t", *[f"<0x{byte:02X}>" for byte in range(256)]]
    model = models.BPE({t: n for n, t in enumerate(tokens)}, [("\u2581", "t")], unk_token="<unk>", byte_fallback=True)
    pipeline = tokenizers.Tokenizer(model)
    pipeline.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    pipeline.decoder = decoders.Sequence(steps)
    return PretrainedTokenizer(pipeline.to_str())


class Foreign(Tokenizer):
    """A user's tokenizer, which says nothing of offsets."""

    registry_name = "foreign"

    def __init__(self, vocabulary):
        super().__init__(vocabulary, ["[UNK]"])

    def _encode(self, text):
        return [self._vocabulary.index(c) if c in self._vocabulary else 0 for c in text]

    def _decode(self, ids):
        return "".join(self._vocabulary[n] for n in ids)


CASES = [  # tokenizer, text, pieces of the first tokens
    (CharacterTokenizer.from_text(TEXT, oov_token="[UNK]"), "xbe", ["x", "b", "e"]),
    (WordTokenizer.from_text(TEXT), "extraordinary be", ["extraordinary", " ", "be"]),
    (WordPieceTokenizer.from_text(TEXT), "Q to be ", ["Q", " to", " be "]),
    (WordPieceTokenizer.from_text(TEXT, lowercase=True), "TÓ to", ["TÓ", " to"]),
    (BYTES, "\u00e9 be", ["\u00e9", "", " be"]),
    (BYTES, "\U0001f600 be", ["\U0001f600", "", "", "", " be"]),
    (with_bos(), "to be", ["", "to", " be"]),
    (with_bos(), "\u00e9", ["", "\u00e9", ""]),
    (with_bos(trim_offsets=True).without_special_tokens(), " be to", [" be", " to"]),
    (with_bos(trim_offsets=True), " be to", ["", " be", " to"]),
    (sentence_piece(), "to be", ["t", "o", " ", "b", "e"]),
    (sentence_piece(), "\u00e9", ["", "\u00e9", ""]),
    (Foreign(["[UNK]", "b", "e"]), "xbe", ["", "xb", "e"]),
]


@pytest.mark.parametrize(("tokenizer", "text", "pieces"), CASES)
def test_pieces_are_those_of_the_text(tokenizer, text, pieces):
    ids, offsets = token_offsets(tokenizer, text)
    assert ids.tolist() == tokenizer.encode(text).tolist()
    ends = piece_ends(text, offsets).tolist()
    found = [text[start:end] for start, end in itertools.pairwise([0, *ends])]
    assert found[: len(pieces)] == pieces
    assert "".join(found) == text
    assert first_token_characters(tokenizer, text) == len(pieces[0])


def test_the_first_token_of_documents_is_a_border():
    assert first_token_characters(BYTES, "\x1eto be") == 1
    assert first_token_characters(WordTokenizer.from_text(TEXT), "x" * 1000 + " be") == 1000


def test_no_text_has_no_pieces():
    for tokenizer in (BYTES, WordTokenizer.from_text(TEXT), CharacterTokenizer("ab")):
        ids, offsets = tokenizer.encode_with_offsets("")
        assert (len(ids), offsets.shape) == (0, (0, 2))
    assert with_bos().encode_with_offsets("")[1].tolist() == [[0, 0]]


def test_what_cannot_be_seen_is_shown():
    assert show_whitespace("a b\n\tc\x00\u202e") == "a·b⏎⇥c⟨U+0000⟩⟨U+202E⟩"
    assert show_whitespace(string.ascii_letters + "é猫") == string.ascii_letters + "é猫"

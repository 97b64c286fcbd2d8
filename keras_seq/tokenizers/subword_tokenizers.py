"""Pieces of words, learned by merging what often stands side by side; trained and run by the `tokenizers` library.

    WordPiece   "unaffable"  ->  un ##aff ##able      Schuster and Nakajima (2012); BERT, Devlin et al. (2018)
    BytePairs   " naïve"     ->  Ġna Ã ¯ ve           Sennrich et al. (2016); bytes: GPT-2, Radford et al. (2019)

WordPiece drops white space and control characters, and a word with a character it has never seen is `[UNK]`. BytePairs
begins with the 256 bytes, each spelt as one printable character (`Ġ` is the space): it knows every text, and gives it
back exactly. Neither takes "[CLS]" and the like in a text for special tokens.
"""

import json

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from keras_seq.tokenizers.base_tokenizer import UNKNOWN, Tokenizer, check_number, check_training_text
from keras_seq.tokenizers.segment_packing import SPECIAL_TOKENS, pack_segments
from keras_seq.tokenizers.text_errors import TokenizerError, check_text, short_repr

PREFIX = "##"
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


class SubwordTokenizer(Tokenizer):
    """What WordPiece and BytePairs share: the special tokens of `SPECIALS`, and batches of rows for encoders."""

    def __init__(self, tokens: list[str], pipeline: tokenizers.Tokenizer):
        super().__init__(tokens, special_tokens=list(SPECIAL_TOKENS))
        self._pipeline = pipeline

    def encode_batch(
        self, texts: list[str], text_pairs: list[str] | None = None, sequence_length: int | None = None
    ) -> dict:
        """Rows `[CLS] a [SEP]`, or `[CLS] a [SEP] b [SEP]` for pairs.

        Args:
            texts: B texts, at least one.
            pairs: As many second texts, or None.
            length: T, the positions in a row: longer rows are cut, longest-first, shorter ones padded on the right.
                None makes the rows as long as the longest of them needs.

        Returns:
            NumPy arrays `[B, T]`: `token_ids` and `segment_ids` (1 for the second text, 0 elsewhere), int32, and
            `padding_mask`, bool, True for non-padding.

        Raises:
            VocabularyError: No texts, not as many pairs, not strings; or a length that does not hold the specials.

        >>> tokenizer = BytePairTokenizer.from_text("ab")
        >>> tokenizer.encode_batch(["a", "bb"], sequence_length=5)["padding_mask"].astype(int).tolist()
        [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]
        """
        firsts = self._encode_rows("texts", texts)
        seconds = None if text_pairs is None else self._encode_rows("pairs", text_pairs)
        if seconds is not None and len(seconds) != len(firsts):
            raise TokenizerError(f"pairs must be as many as texts, {len(firsts)}, not {len(seconds)}.")
        return pack_segments(firsts, seconds, sequence_length)

    def _encode_rows(self, name: str, texts: list[str]) -> list[list[int]]:
        if not isinstance(texts, list | tuple | np.ndarray) or not len(texts):
            raise TokenizerError(f"{name} must be a list of at least one text, not {short_repr(texts)}.")
        texts = list(texts)
        for text in texts:
            check_text(text)
        return [row.ids for row in self._pipeline.encode_batch_fast(texts, add_special_tokens=False)]

    def _encode(self, text: str) -> list[int]:
        return self._pipeline.encode(text, add_special_tokens=False).ids

    def _decode(self, ids: list[int]) -> str:
        return self._pipeline.decode(ids, skip_special_tokens=False)


class WordPieceTokenizer(SubwordTokenizer):
    """BERT's pieces of words; `##` marks a piece within one.

    Args:
        tokens: The keys of `SPECIALS`, then the pieces. `from_text` finds them.
        lowercase: Whether texts are lower-cased and lose their accents first, as for BERT's uncased models.

    Raises:
        VocabularyError: The tokens are no distinct strings after the special ones; `lowercase` is no bool.

    >>> pieces = WordPiece.from_text("low lower lowest slow slower slowest")
    >>> pieces.decode(pieces.encode("slowest  lower"))
    'slowest lower'
    """

    kind = "wordpiece"
    fields = ("tokens", "lowercase")

    def __init__(self, tokens: list[str], lowercase: bool = False):
        super().__init__(tokens, _word_pipeline(lowercase))
        places = {token: place for place, token in enumerate(tokens)}
        self._pipeline.model = models.WordPiece(places, unk_token=UNKNOWN, max_input_chars_per_word=100)
        self._lowercase = lowercase

    @property
    def lowercase(self) -> bool:
        """Whether texts are lower-cased and lose their accents first."""
        return self._lowercase

    @classmethod
    def from_text(
        cls, text: str, vocabulary_size: int = 8192, min_count: int = 2, lowercase: bool = False
    ) -> "WordPieceTokenizer":
        """The pieces learned from a text, the same ones each time.

        Args:
            text: It has at least one word.
            size: The most ids there may be. The 5 special tokens and every character of the text are among them, and
                once more, with `##`, the characters that go on within a word.
            min_count: How often two pieces have to stand side by side to become one.
            lowercase: As for the class.

        Raises:
            VocabularyError: The text is empty, no text or has no word, or a number is too small.
        """
        check_training_text(text)
        check_number("min_count", min_count, 1, "the fewest times that a pair can occur")
        pipeline = _word_pipeline(lowercase)
        words = {w for w, _ in pipeline.pre_tokenizer.pre_tokenize_str(pipeline.normalizer.normalize_str(text))}
        if not words:
            raise TokenizerError(f"WordPiece learns from a text of at least one word, not from {short_repr(text)}.")
        within = sorted({PREFIX + character for word in words for character in word[1:]})
        least = len(SPECIAL_TOKENS) + len(within) + len(set("".join(words)))
        check_number(
            "size", vocabulary_size, least, f"for {len(SPECIAL_TOKENS)} special tokens and the characters of this text"
        )
        # The library numbers what goes on within a word in the order of a hash map, so each run would differ from the
        # last (tokenizers#1794). Named beforehand as special tokens, these pieces have fixed places.
        trainer = trainers.WordPieceTrainer(
            vocab_size=min(
                vocabulary_size, least + len(text)
            ),  # no more can be learned, and the library makes room for all
            min_frequency=min(min_count, len(text) + 1),
            special_tokens=[*SPECIAL_TOKENS, *within],
            continuing_subword_prefix=PREFIX,
            show_progress=False,
        )
        pipeline.train_from_iterator([text], trainer)
        places = pipeline.get_vocab()
        return cls(sorted(places, key=places.get), lowercase)


class BytePairTokenizer(SubwordTokenizer):
    """Byte-level byte pair encoding: lossless for every text, and `[UNK]` is never produced.

    Ids that are no whole UTF-8, such as half of a character, decode to U+FFFD.

    Args:
        merges: Pairs of tokens in the order in which they become one. `from_text` learns them. The tokens are the keys
            of `SPECIALS`, the 256 bytes and what the merges make.

    Raises:
        VocabularyError: A merge is no pair of tokens that are there by then.

    >>> pairs = BytePairs.from_text("low lower lowest slow slower slowest")
    >>> pairs.decode(pairs.encode("  slöwest?"))
    '  slöwest?'
    """

    kind = "bpe"
    fields = ("merges",)

    def __init__(self, merges: list[list[str]]):
        places = {token: place for place, token in enumerate([*SPECIAL_TOKENS, *ALPHABET])}
        if not isinstance(merges, list):
            raise TokenizerError(f"merges must be a list of pairs of tokens, not {short_repr(merges)}.")
        for merge in merges:
            pair = isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge)
            if not pair or not places.keys() >= {*merge} or SPECIAL_TOKENS.keys() & {*merge, "".join(merge)}:
                raise TokenizerError(
                    f"A merge must be a list of two tokens, bytes or made by earlier merges, not {short_repr(merge)}."
                )
            places.setdefault("".join(merge), len(places))
        pipeline = tokenizers.Tokenizer(models.BPE(places, [tuple(merge) for merge in merges]))
        pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        pipeline.decoder = decoders.ByteLevel()
        super().__init__(list(places), pipeline)
        self._merges = tuple(map(tuple, merges))

    @property
    def merges(self) -> list[list[str]]:
        """The pairs of tokens that become one, in order."""
        return [list(merge) for merge in self._merges]

    @classmethod
    def from_text(cls, text: str, vocabulary_size: int = 8192, min_count: int = 2) -> "BytePairTokenizer":
        """The merges learned from a text, the same ones each time.

        Args:
            text: At least one character.
            size: The most ids there may be; at least 261, for the 5 special tokens and the 256 bytes.
            min_count: How often two tokens have to stand side by side to become one.

        Raises:
            VocabularyError: The text is empty or no text, or a number is too small.
        """
        check_training_text(text)
        check_number("min_count", min_count, 1, "the fewest times that a pair can occur")
        least = len(SPECIAL_TOKENS) + len(ALPHABET)
        check_number(
            "size", vocabulary_size, least, f"for {len(SPECIAL_TOKENS)} special tokens and {len(ALPHABET)} bytes"
        )
        learner = cls([])._pipeline
        trainer = trainers.BpeTrainer(
            vocab_size=min(
                vocabulary_size, least + len(text.encode())
            ),  # no more can be learned; the library makes room for all
            min_frequency=min(min_count, len(text.encode()) + 1),
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=ALPHABET,
            show_progress=False,
        )
        learner.train_from_iterator([text], trainer)
        return cls(json.loads(learner.to_str())["model"]["merges"])


def _word_pipeline(lowercase: bool) -> tokenizers.Tokenizer:
    if not isinstance(lowercase, bool):
        raise TokenizerError(f"lowercase must be True or False, not {short_repr(lowercase)}.")
    pipeline = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix=PREFIX, cleanup=False)
    return pipeline

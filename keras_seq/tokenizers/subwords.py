"""Convert subwords to ids and back: WordPiece and byte-pair encoding, trained and run by the `tokenizers` library.

    WordPiece   "unaffable"  ->  un ##aff ##able      Schuster and Nakajima (2012); BERT, Devlin et al. (2018)
    BytePair    " naïve"     ->  Ġna Ã ¯ ve           Sennrich et al. (2016); bytes: GPT-2, Radford et al. (2019)

Both merge tokens that are often adjacent. WordPiece drops whitespace and control characters, and encodes a word with an
unknown character as `[UNK]`. Byte-pair encoding starts from the 256 bytes, each written as one printable character (`Ġ`
is the space), so it encodes every text and decodes it exactly. Neither treats "[CLS]" in a text as a special token.
"""

import json
from collections.abc import Sequence
from typing import Self

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from keras_seq import checks
from keras_seq.checks import short_repr
from keras_seq.tokenizers.base import OOV_TOKEN, Tokenizer, TokenizerError, check_text, check_training_texts

SPECIAL_TOKENS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
"""Special tokens of subword tokenizers, and their ids."""
PREFIX = "##"
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def pack_segments(
    firsts: list[list[int]], seconds: list[list[int]] | None, sequence_length: int | None
) -> dict[str, np.ndarray]:
    """Pack texts, or pairs of texts, into rows with special tokens and padding, as in BERT (figure 2 of the paper).

        token_ids     [CLS] a a a [SEP] b b [SEP] [PAD] [PAD]            [CLS] a a a [SEP]       without a second text
        segment_ids     0   0 0 0   0   1 1   1     0     0                0   0 0 0   0
        padding_mask    1   1 1 1   1   1 1   1     0     0                1   1 1 1   1

    Texts that are too long lose ids from their end, one at a time, always from the text that is then longer.

    >>> pack_segments([[7, 8], [9]], [[5], [6]], sequence_length=7)["token_ids"].tolist()
    [[2, 7, 8, 3, 5, 3, 0], [2, 9, 3, 6, 3, 0, 0]]
    """
    num_special = 2 if seconds is None else 3
    if sequence_length is not None:
        reason = f"for the {num_special} special tokens of a row"
        checks.integer("sequence_length", sequence_length, min_value=num_special, reason=reason)
        if sequence_length * len(firsts) >= checks.MAX_BATCH_IDS:
            raise TokenizerError(f"sequence_length={sequence_length} for {len(firsts)} rows; expected < 2**31 ids.")
    rows, second_starts = [], []
    for number, first in enumerate(firsts):
        second = [] if seconds is None else seconds[number]
        if sequence_length is not None:
            num_ids = sequence_length - num_special
            first = first[: max(num_ids - len(second), (num_ids + 1) // 2)]
            second = second[: num_ids - len(first)]
        row = [SPECIAL_TOKENS["[CLS]"], *first, SPECIAL_TOKENS["[SEP]"]]
        second_starts.append(len(row))
        rows.append(row if seconds is None else [*row, *second, SPECIAL_TOKENS["[SEP]"]])
    positions = np.arange(max(map(len, rows)) if sequence_length is None else sequence_length)
    padding_mask = positions < np.array([len(row) for row in rows])[:, None]
    token_ids = np.full(padding_mask.shape, SPECIAL_TOKENS["[PAD]"], np.int32)
    token_ids[padding_mask] = np.concatenate(rows)
    segment_ids = (padding_mask & (positions >= np.array(second_starts)[:, None])).astype(np.int32)
    return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask}


class SubwordTokenizer(Tokenizer):
    """Base class of subword tokenizers: the tokens of `SPECIAL_TOKENS`, and batches of rows for encoders."""

    def __init__(self, vocabulary: list[str], pipeline: tokenizers.Tokenizer):
        super().__init__(vocabulary, special_tokens=list(SPECIAL_TOKENS))
        self._pipeline = pipeline

    def encode_batch(
        self, texts: list[str], text_pairs: list[str] | None = None, sequence_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Encode texts as rows `[CLS] a [SEP]`, or pairs of texts as rows `[CLS] a [SEP] b [SEP]`.

        >>> batch = BytePairTokenizer.from_text("ab").encode_batch(["a", "bb"], sequence_length=5)
        >>> batch["padding_mask"].astype(int).tolist()
        [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]
        """
        firsts = self._encode_rows("texts", texts)
        seconds = None if text_pairs is None else self._encode_rows("text_pairs", text_pairs)
        if seconds is not None and len(seconds) != len(firsts):
            raise TokenizerError(f"text_pairs has {len(seconds)} texts; expected as many as texts, {len(firsts)}.")
        return pack_segments(firsts, seconds, sequence_length)

    def to_tokenizer_json(self) -> str:
        """Return the text of a tokenizer.json, as the `tokenizers` library and transformers read it."""
        return self._pipeline.to_str(pretty=True)

    def encode_texts(self, texts: list[str]) -> list[np.ndarray]:
        """Convert several texts to ids, on all cores; see the base class."""
        return [np.array(ids, np.int32) for ids in self._encode_rows("texts", texts)] if texts else []

    def unknown_parts(self, text: str) -> list[str]:
        """Return the words of a text that become `[UNK]`; see the base class."""
        check_text(text)
        encoding = self._pipeline.encode(text, add_special_tokens=False)
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        return [*dict.fromkeys(text[slice(*span)] for id, span in pairs if id == SPECIAL_TOKENS[OOV_TOKEN])]

    def _encode_rows(self, name: str, texts: list[str]) -> list[list[int]]:
        if not isinstance(texts, list | tuple | np.ndarray) or not len(texts):
            raise TokenizerError(f"{name}={short_repr(texts)}; expected a list of at least one text.")
        texts = list(texts)
        for text in texts:
            check_text(text)
        return [row.ids for row in self._pipeline.encode_batch_fast(texts, add_special_tokens=False)]

    def _encode(self, text: str) -> list[int]:
        return self._pipeline.encode(text, add_special_tokens=False).ids

    def _encode_with_offsets(self, text: str):
        encoding = self._pipeline.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def _decode(self, ids: list[int]) -> str:
        return self._pipeline.decode(ids, skip_special_tokens=False)


class WordPieceTokenizer(SubwordTokenizer):
    """Convert text to ids by BERT's subwords; `##` marks a subword that continues a word.

    A word of more than 100 characters is `[UNK]`, as in BERT.

    Args:
        vocabulary: The keys of `SPECIAL_TOKENS`, then the subwords. `from_text` trains them.
        lowercase: Whether to lower-case texts and strip accents first, as for BERT's uncased models.

    Raises:
        TokenizerError: The vocabulary is not a list of distinct strings that begins with the special tokens, or
            `lowercase` is not a bool.

    >>> tokenizer = WordPieceTokenizer.from_text("low lower lowest slow slower slowest")
    >>> tokenizer.decode(tokenizer.encode("slowest  lower"))
    'slowest lower'
    """

    registry_name = "wordpiece"
    config_fields = ("vocabulary", "lowercase")

    def __init__(self, vocabulary: list[str], lowercase: bool = False):
        super().__init__(vocabulary, _word_pipeline(lowercase))
        token_to_id = {token: id for id, token in enumerate(vocabulary)}
        self._pipeline.model = models.WordPiece(token_to_id, unk_token=OOV_TOKEN, max_input_chars_per_word=100)
        self._lowercase = lowercase

    @property
    def lowercase(self) -> bool:
        """Return whether texts are lower-cased and accents stripped first."""
        return self._lowercase

    @classmethod
    def from_text(cls, text: str, vocabulary_size: int = 8192, min_count: int = 2, lowercase: bool = False) -> Self:
        """Train a tokenizer on a text, deterministically.

        Args:
            text: At least one word.
            vocabulary_size: Maximum number of ids. The 5 special tokens and every character of the text are among
                them, and again with `##` the characters that continue a word.
            min_count: Minimum number of occurrences of two adjacent tokens to merge.
            lowercase: As for the class.

        Raises:
            TokenizerError: The text is empty, not a text or has no word, or `lowercase` is not a bool.
            ValueError: `vocabulary_size` or `min_count` is not an integer or too small.
        """
        return cls.from_texts([text], vocabulary_size, min_count, lowercase)

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], vocabulary_size: int = 8192, min_count: int = 2, lowercase: bool = False
    ) -> Self:
        """Train a tokenizer on several texts, such as documents; no token spans two of them. See `from_text`."""
        check_training_texts(texts)
        num_characters = sum(map(len, texts))
        checks.integer("min_count", min_count, min_value=1)
        pipeline = _word_pipeline(lowercase)
        normalized = map(pipeline.normalizer.normalize_str, texts)
        words = {word for text in normalized for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(text)}
        if not words:
            raise TokenizerError(f"text={short_repr(texts[0])}; expected at least one word to train on.")
        continuations = sorted({PREFIX + character for word in words for character in word[1:]})
        min_size = len(SPECIAL_TOKENS) + len(continuations) + len(set("".join(words)))
        reason = f"for {len(SPECIAL_TOKENS)} special tokens and the characters of this text"
        checks.integer("vocabulary_size", vocabulary_size, min_size, reason=reason)
        # The library numbers continuations in the order of a hash map, which differs from run to run (tokenizers#1794).
        # Listed as special tokens, they have fixed ids.
        trainer = trainers.WordPieceTrainer(
            vocab_size=min(vocabulary_size, min_size + num_characters),  # the library allocates memory for all of them
            min_frequency=min(min_count, num_characters + 1),
            special_tokens=[*SPECIAL_TOKENS, *continuations],
            continuing_subword_prefix=PREFIX,
            show_progress=False,
        )
        pipeline.train_from_iterator(texts, trainer)
        token_to_id = pipeline.get_vocab()
        return cls(sorted(token_to_id, key=token_to_id.get), lowercase)


class BytePairTokenizer(SubwordTokenizer):
    """Convert text to ids by byte-level byte-pair encoding: lossless for every text, without `[UNK]`.

    Ids that are not complete UTF-8, such as half of a character, decode to U+FFFD.

    Args:
        merges: Pairs of tokens in the order in which they are merged. `from_text` trains them. The vocabulary is the
            keys of `SPECIAL_TOKENS`, the 256 bytes and the merged tokens.

    Raises:
        TokenizerError: A merge is not a pair of bytes or earlier merged tokens, or is there twice.

    >>> tokenizer = BytePairTokenizer.from_text("low lower lowest slow slower slowest")
    >>> tokenizer.decode(tokenizer.encode("  slöwest?"))
    '  slöwest?'
    """

    registry_name = "bpe"
    config_fields = ("merges",)

    def __init__(self, merges: list[list[str]]):
        token_to_id = {token: id for id, token in enumerate([*SPECIAL_TOKENS, *ALPHABET])}
        if not isinstance(merges, list):
            raise TokenizerError(f"merges={short_repr(merges)}; expected a list of pairs of tokens.")
        merged = set()
        for merge in merges:
            is_pair = isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge)
            if not is_pair or not token_to_id.keys() >= {*merge} or SPECIAL_TOKENS.keys() & {*merge, "".join(merge)}:
                raise TokenizerError(f"A merge must be two bytes or earlier merges, not {short_repr(merge)}.")
            if tuple(merge) in merged:
                raise TokenizerError(f"A merge must be in the list once, but {merge} is there again.")
            merged.add(tuple(merge))
            token_to_id.setdefault("".join(merge), len(token_to_id))
        pipeline = tokenizers.Tokenizer(models.BPE(token_to_id, [tuple(merge) for merge in merges]))
        pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        pipeline.decoder = decoders.ByteLevel()
        super().__init__(list(token_to_id), pipeline)
        self._merges = tuple(map(tuple, merges))

    @property
    def merges(self) -> list[list[str]]:
        """The pairs of tokens that are merged, in order."""
        return [list(merge) for merge in self._merges]

    @classmethod
    def from_text(cls, text: str, vocabulary_size: int = 8192, min_count: int = 2) -> Self:
        """Train a tokenizer on a text, deterministically.

        Args:
            text: At least one character.
            vocabulary_size: Maximum number of ids; at least 261, for the 5 special tokens and the 256 bytes.
            min_count: Minimum number of occurrences of two adjacent tokens to merge.

        Raises:
            TokenizerError: The text is empty or not a text.
            ValueError: `vocabulary_size` or `min_count` is not an integer or too small.
        """
        return cls.from_texts([text], vocabulary_size, min_count)

    @classmethod
    def from_texts(cls, texts: Sequence[str], vocabulary_size: int = 8192, min_count: int = 2) -> Self:
        """Train a tokenizer on several texts, such as documents; no token spans two of them. See `from_text`."""
        check_training_texts(texts)
        checks.integer("min_count", min_count, min_value=1)
        min_size = len(SPECIAL_TOKENS) + len(ALPHABET)
        reason = f"for {len(SPECIAL_TOKENS)} special tokens and {len(ALPHABET)} bytes"
        checks.integer("vocabulary_size", vocabulary_size, min_size, reason=reason)
        pipeline = cls([])._pipeline
        num_bytes = sum(len(text.encode()) for text in texts)
        trainer = trainers.BpeTrainer(
            vocab_size=min(vocabulary_size, min_size + num_bytes),  # the library allocates memory for all of them
            min_frequency=min(min_count, num_bytes + 1),
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=ALPHABET,
            show_progress=False,
        )
        pipeline.train_from_iterator(texts, trainer)
        return cls(json.loads(pipeline.to_str())["model"]["merges"])


def _word_pipeline(lowercase: bool) -> tokenizers.Tokenizer:
    if not isinstance(lowercase, bool):
        raise TokenizerError(f"lowercase={short_repr(lowercase)}; expected True or False.")
    pipeline = tokenizers.Tokenizer(models.WordPiece(unk_token=OOV_TOKEN))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix=PREFIX, cleanup=False)
    return pipeline

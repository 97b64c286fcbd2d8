"""Rows of a text for masked language modeling, `[CLS] a [SEP] b [SEP]` where b continues a; texts with [MASK]."""

import dataclasses
import pathlib

import numpy as np

from experiments.frame.texts import SplitCorpus
from experiments.masked_lm.settings import MaskedLMConfig
from keras_seq.data import ArrayBatches, MaskedLMMaskGenerator
from keras_seq.evaluation.validation_sample import sample_rows
from keras_seq.tokenizers import SPECIAL_TOKENS, WordPieceTokenizer
from keras_seq.tokenizers.subwords import pack_segments

MASK = "[MASK]"
OVERLAP = 4  # training rows that contain each token, at different positions
SENTENCES = {
    "pydoc": (
        "If the object is not callable, a [MASK] is raised.",
        "The [MASK] statement is used for conditional execution.",
        "Return the [MASK] of the sequence.",
    ),
    "shakespeare": ("To be or not to [MASK].", "Good [MASK], my lord.", "What is thy [MASK], sir?"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedRows:
    """Rows with masked tokens."""

    inputs: dict[str, np.ndarray]  # token and segment ids [N, T]
    targets: np.ndarray  # [N, T]
    is_masked: np.ndarray  # [N, T]


class MaskedCorpus(SplitCorpus):
    """A corpus in word pieces, the texts to fill, the masked rows of the validation text, and a sample of them."""

    def __init__(self, config: MaskedLMConfig, folder: pathlib.Path):
        def tokenizer(text, train_text):
            return WordPieceTokenizer.from_text(train_text, vocabulary_size=config.vocabulary_size)

        super().__init__(config.corpus, folder, tokenizer=tokenizer)
        self.config, self.length = config, config.encoder.context_length
        self._check("training", self.train, self.length + (config.batch_size - 1) * (self.length // OVERLAP))
        rows = segment_pairs(self.train, self.length, self.length // OVERLAP, config.seed)
        self.train_batches = ArrayBatches(rows, config.batch_size, config.seed)
        self.masked = self._masked_rows(self.validation_text)
        self.sample = self._sample(config.train)
        self.texts = config.text or SENTENCES.get(config.corpus) or self._passages()
        for text in self.texts:
            encode_masked(text, self.tokenizer, self.length)

    def _check(self, part, ids, needed):
        if len(ids) < needed:
            raise ValueError(
                f"The {part} text has {len(ids)} tokens; expected at least {needed}: give a longer one (--corpus), "
                "or a smaller --encoder.context-length or --batch-size."
            )

    def mask_generator(self, seed: int) -> MaskedLMMaskGenerator:
        """Return a generator that masks a fraction of the tokens that are not special."""
        special, vocabulary_size = tuple(SPECIAL_TOKENS.values()), self.tokenizer.vocabulary_size
        return MaskedLMMaskGenerator(SPECIAL_TOKENS[MASK], vocabulary_size, special, self.config.mask_rate, seed)

    def _masked_rows(self, text):
        self._check("validation", ids := self.encode(text), self.length)
        rows = segment_pairs(ids, self.length, self.length - 3, self.config.seed)
        # Not the seed of training, and always step 0: every validation masks the same tokens.
        masked_ids, targets, weights = self.mask_generator(self.config.seed + 1).batch(0, rows["token_ids"])
        if not weights.any():
            raise ValueError("None of the validation tokens is masked; expected a longer validation split.")
        return MaskedRows({**rows, "token_ids": masked_ids}, targets, weights > 0)

    def _sample(self, train):
        """Return the rows that are scored during training, spread evenly over all; None for all."""
        rows, total = self.masked.targets, len(self.validation_text)
        count = train.validated_characters(total, 2) * len(rows) // total
        if count == len(rows):
            return None
        if count < 1:
            raise ValueError(
                f"--train.validation-characters {train.validation_characters}: less than a row of {self.length} "
                "tokens; expected more characters."
            )
        indices = sample_rows(rows, count)
        inputs = {name: values[indices] for name, values in self.masked.inputs.items()}
        sample = MaskedRows(inputs, rows[indices], self.masked.is_masked[indices])
        if not sample.is_masked.any():
            raise ValueError(
                f"--train.validation-characters {train.validation_characters}: none of their tokens is masked; "
                "expected more characters."
            )
        return sample

    def _passages(self):
        """Return up to four passages of the validation text, each with [MASK] for the token in the middle."""
        length = (self.length - 3) // 2
        texts = np.lib.stride_tricks.sliding_window_view(self.validation, length)[: 3 * length + 1 : length]
        sides = [map(self.tokenizer.decode, (text[: length // 2], text[length // 2 + 1 :])) for text in texts]
        return tuple(f"{left} {MASK} {right}" for left, right in sides)


def segment_pairs(ids: np.ndarray, length: int, stride: int, seed: int) -> dict[str, np.ndarray]:
    """Cut ids `[N]` into rows of `length` ids, with the special ones, whose texts start every `stride` ids."""
    texts = np.lib.stride_tricks.sliding_window_view(ids, length - 3)[::stride]
    middles = np.random.default_rng(seed).integers(1, length - 3, size=len(texts))
    pairs = [(text[:middle], text[middle:]) for text, middle in zip(texts, middles, strict=True)]
    rows = pack_segments(*zip(*pairs, strict=True), length)
    return {name: rows[name] for name in ("token_ids", "segment_ids")}


def encode_masked(text: str, tokenizer: WordPieceTokenizer, context_length: int) -> dict[str, np.ndarray]:
    """Return the token and segment ids `[1, T]` of a text with [MASK], which is not special to the tokenizer."""
    if MASK not in text:
        raise ValueError(f"--text {text!r}: expected {MASK} in the place of a word.")
    first, *rest = (tokenizer.encode(part).tolist() for part in text.split(MASK))
    ids = [*first, *(n for part in rest for n in (SPECIAL_TOKENS[MASK], *part))]
    if (length := len(ids) + 2) > context_length:
        expected = f"expected at most {context_length}, the context length of the model: shorten the text"
        raise ValueError(f"--text {text[:40]!r}...: {length} tokens with [CLS] and [SEP]; {expected}.")
    rows = pack_segments([ids], None, None)
    return {name: rows[name] for name in ("token_ids", "segment_ids")}

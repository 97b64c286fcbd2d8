"""The text of an experiment: loaded, checked and split once, and encoded once.

all of it -> training text, held-out text (where hyperparameters are chosen), validation text -> ids
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.frame.runs import check_same_corpus
from keras_seq import training
from keras_seq.data import load_corpus, verbatim_overlap
from keras_seq.tokenizers import CharacterTokenizer

DEFAULT_CORPUS, SMOKE_CORPUS = "docstrings", "pydoc"
MIN_OVERLAP_TO_REPORT = 0.05  # fraction of the validation text
MAX_PARAMETER_RATIO = 1.05  # models whose parameter counts differ more are pointed out


class SplitCorpus:
    """A corpus split into training, held-out and validation text, and the ids of each.

    Attributes:
        corpus: The `Corpus`.
        tokenizer: The tokenizer, `CharacterTokenizer` of the whole text by default.
        train_text, held_out_text, validation_text: The parts; the held-out text is the last tenth of the training
            split, or None.
        train, held_out, validation: Their ids `[N]`.
        document_token: The id that begins a document, None in one text.

    Args:
        name: Name or path of the corpus.
        folder: Folder of the runs, which must have been trained on the same text.
        min_length: Fewest characters of each part.
        held_out: Whether to cut the held-out text from the training split.
        tokenizer: Function from the whole text and the training text to the tokenizer.
        **corpus_options: Keyword arguments of `load_corpus`.

    Raises:
        ValueError: The corpus cannot be read, is not that of the runs, or a part is shorter than `min_length`.
    """

    def __init__(
        self,
        name: Any,
        folder: pathlib.Path,
        min_length: int = 2,
        held_out: bool = False,
        tokenizer: Callable = lambda text, train_text: CharacterTokenizer.from_text(text),
        **corpus_options,
    ):
        self.corpus = load_corpus(name, **corpus_options)
        check_same_corpus(folder, self.corpus)
        self.train_text, self.validation_text = self.corpus.split(min_length=min_length)
        self.held_out_text = None
        if held_out:
            self.train_text, self.held_out_text = self.hold_out(min_length)
        self.tokenizer = tokenizer(self.corpus.text, self.train_text)
        self.train, self.validation = map(self.encode, (self.train_text, self.validation_text))
        self.held_out = self.encode(self.held_out_text) if held_out else None
        self.document_token = None

    def hold_out(self, min_length: int) -> tuple[str, str]:
        """Return the training text without its last tenth, and that tenth."""
        return dataclasses.replace(self.corpus, text=self.train_text).split(min_length=min_length)

    def hold_out_ids(self, min_length: int) -> tuple[Any, str]:
        """Return the ids of the training text without its last tenth, and the text of that tenth."""
        text, held_out_text = self.hold_out(min_length)
        return self.encode(text), held_out_text

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of a text, `[N]`."""
        return self.tokenizer.encode(text)

    @property
    def characters_per_token(self) -> float:
        """The mean over the validation text."""
        return len(self.validation_text) / len(self.validation)

    def scored_stretches(self, sequence_length: int, train: training.TrainConfig) -> np.ndarray | None:
        """Return where in the validation text the stretches scored during training begin and end, `[K, 2]`, or None.

        Raises:
            ValueError: `train.validation_characters` is less than a window and the next character.
        """
        total = len(self.validation_text)
        train.validated_characters(total, sequence_length + 1)
        sample = training.validation_sample(self.validation, sequence_length, train, total)
        if sample is None:
            return None
        ends = sample.starts[:, None] + 1 + [0, sample.length]  # the first token of a stretch is not predicted
        if len(self.validation) == len(self.validation_text):
            return ends
        lengths = [len(self.tokenizer.decode(ids)) for ids in np.split(self.validation, ends.reshape(-1))]
        scale = len(self.validation_text) / sum(lengths)  # 1, unless the tokens of a character were separated
        return (np.cumsum(lengths[:-1]) * scale).astype(int).reshape(-1, 2)

    def introduce(self, train: training.TrainConfig, min_length: int, plan: str, scored: Sequence | None = None):
        """Print sizes, the plan, what is scored during training, and a note if the validation text is not new."""
        parts = {"training": self.train, "held-out": self.held_out, "validation": self.validation}
        sizes = ", ".join(f"{len(ids):,} {part} tokens" for part, ids in parts.items() if ids is not None)
        scored = self.validation_text if scored is None else scored
        note = validation_note(train, scored, min_length)
        print(f"{self.corpus.name}: {sizes}, vocabulary size {self.tokenizer.vocabulary_size:,}; {plan}{note}")
        if (note := overlap_note(self.train_text, self.validation_text)) is not None:
            print(note)


def smoke_corpus(name: Any) -> Any:
    """Return the corpus of a smoke run: a smaller one instead of the default, any other unchanged."""
    return SMOKE_CORPUS if name == DEFAULT_CORPUS else name


def overlap_note(train_text: str, validation_text: str) -> str | None:
    """Return a note on how much of the validation text is copied from the training text, None if that is little."""
    overlap = verbatim_overlap(train_text, validation_text)
    if overlap < MIN_OVERLAP_TO_REPORT:
        return None
    return (
        f"Note: {overlap:.0%} of the validation text occurs word for word in the training text (in passages of 64 "
        "characters or more). Models can memorize these passages and compressors copy them, so the losses "
        "underestimate the loss on new text."
    )


def validation_note(train: training.TrainConfig, validation: Sequence, min_length: int) -> str:
    """Return, as the end of a sentence, which part of the validation text is scored during training; "" for all of it.

    Raises:
        ValueError: `train.validation_characters` is less than `min_length`.
    """
    total = len(validation)
    part = train.validated_characters(total, min_length)
    if part == total:
        return ""
    return f"; validating on {spread_note(part, total)} during training, on all of them at the end"


def spread_note(part: int, total: int) -> str:
    """Return how many characters of a text a sample has."""
    return f"{part:,} characters spread over {total:,}"


def compare_sizes(counts: Sequence[int]) -> str:
    """Return a sentence that compares the largest and the smallest of the numbers of parameters; "" for one model."""
    if len(counts) == 1:
        return ""
    ratio = max(counts) / min(counts)
    size = f"The largest model has {ratio - 1:.1%} more parameters than the smallest"
    return f"{size}{'.' if ratio <= MAX_PARAMETER_RATIO else ': more than the 5 % that count as equal here.'}"

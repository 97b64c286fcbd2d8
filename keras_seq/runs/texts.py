"""The corpus of an experiment, loaded, checked, split and encoded once: a text, or folders of token ids.

    --corpus NAME_OR_PATH             text -> training, held-out (to choose options) and validation text -> ids
    --corpus FOLDER [FOLDER ...]      of `keras-seq prepare`: training reads its windows from the files
    --corpus 0.7:FOLDER 0.3:FOLDER    with weights: a row of a batch is of a source with the share of its weight

The validation part of token ids begins with the first document after nine tenths of them. Of a large one, stretches
that are spread evenly over it are scored, each of which begins a document.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_seq import training
from keras_seq.data import Corpus, CorpusError, MixedWindows, RandomWindows, TokenFiles, load_corpus, verbatim_overlap
from keras_seq.data.token_files import concatenated
from keras_seq.data.token_shards import TOKENIZER_NAME, is_prepared, read_index
from keras_seq.evaluation.streaming import MAX_STRETCHES, spread_edges
from keras_seq.runs.folders import check_same_corpus
from keras_seq.tokenizers import CharacterTokenizer, load_tokenizer
from keras_seq.tokenizers.registry import decode_documents, encode_documents

DEFAULT_CORPUS, SMOKE_CORPUS = "docstrings", "pydoc"
MIN_OVERLAP_TO_REPORT = 0.05  # fraction of the validation text
MAX_TOKENS_AS_TEXT = 1 << 20  # of each part that is decoded
MAX_VERIFIED_BYTES = 1 << 30  # a second; --verify of keras-seq prepare reads larger folders
WEIGHTED = re.compile(r"(\d+\.?\d*|\.\d+):(.+)", re.ASCII | re.DOTALL)


class SplitCorpus:
    """A corpus split into training, held-out and validation text, and the ids of each.

    `train_text`, `held_out_text` and `validation_text` are the parts, and `train`, `held_out` and `validation` their
    ids `[N]`. The held-out text is the last tenth of the training split, or None. `scored` is what a training validates
    on, the validation text or its ids. `document_token` is the id that begins a document, None in one text. The runs in
    `folder` must have been trained on the same text; `tokenizer` makes one of the whole text and the training text.
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
        self.scored, self.document_token = self.validation_text, None

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
        """Return where in the validation text the stretches scored during training begin and end, `[K, 2]`, or None."""
        total = len(self.validation_text)
        train.validated_characters(total, sequence_length + 1)
        sample = training.validation_sample(self.validation, sequence_length, train, total)
        if sample is None:
            return None
        ends = sample.starts[:, None] + 1 + [0, sample.length]  # the first token of a stretch is not predicted
        lengths = [len(decode_documents(self.tokenizer, ids)) for ids in np.split(self.validation, ends.reshape(-1))]
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


@dataclasses.dataclass(frozen=True)
class TokenMixture:
    """Ids of several sources with weights: `mixture[:n]` reads the beginnings, as many of each as its share."""

    parts: tuple[TokenFiles, ...]
    weights: tuple[float, ...]

    def __len__(self) -> int:
        """Return the number of all ids."""
        return sum(map(len, self.parts))

    def __getitem__(self, index: slice) -> np.ndarray:
        """Read the beginnings of the sources."""
        return np.concatenate([part[:n] for part, n in zip(self.parts, self.counts(index.stop), strict=True)])

    def counts(self, total: int) -> list[int]:
        """Return how many ids of each source are its share of `total` ids, or of as many as all shares allow."""
        shares = [weight / sum(self.weights) for weight in self.weights]
        total = min(total, *(len(part) / share for part, share in zip(self.parts, shares, strict=True)))
        return [int(total * share) for share in shares]


def weighted_names(names: Sequence[str]) -> tuple[list[str], list[float] | None]:
    """Return the folders that the words of `--corpus` name, and their weights, None without any."""
    matches = [None if os.path.lexists(name) else WEIGHTED.fullmatch(name) for name in names]
    if not any(matches):
        return [*names], None
    for name, match in zip(names, matches, strict=True):
        if match is None or not float(match[1]) > 0:
            expected = "a weight for each folder, such as 0.7:FOLDER_A 0.3:FOLDER_B"
            raise ValueError(f"--corpus {' '.join(names)}: {name} has no weight above 0; expected {expected}.")
    return [match[2] for match in matches], [float(match[1]) for match in matches]


class SplitTokens(SplitCorpus):
    """Folders of token ids, split into a training, held-out and validation part.

    `train` are `TokenFiles`, or a `TokenMixture` of weighted folders, each of which is split. `held_out` and
    `validation` are at most `MAX_TOKENS_AS_TEXT` ids, spread over their parts; their texts are decoded. Baselines and
    the search for copied passages see the beginning of `train`.
    """

    def __init__(
        self,
        names: Sequence[str],
        folder: pathlib.Path,
        min_length: int = 2,
        held_out: bool = False,
        weights: Sequence[float] | None = None,
    ):
        if len({os.path.realpath(name) for name in names}) < len(names):
            raise ValueError(f"--corpus {' '.join(names)}: expected each folder once.")
        parts = [TokenFiles.open(name) for name in names]
        files = concatenated(parts)
        indices = [read_index(name) for name in names]
        digests = "".join(index[key] for index in indices for key in ("sha256", "tokenizer_sha256"))
        self.unknown = sum(index.get("unknown", 0) for index in indices) / len(files)
        if weights is not None:
            digests += json.dumps(weights)
        label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        self.corpus = Corpus(label, "", hashlib.sha256(digests.encode()).hexdigest())
        check_same_corpus(folder, self.corpus)
        if sum(shard.path.stat().st_size for shard in files.shards) <= MAX_VERIFIED_BYTES:
            files.verify()
        tokenizers = [load_tokenizer(pathlib.Path(name) / TOKENIZER_NAME) for name in names]
        if any(tokenizer != tokenizers[0] for tokenizer in tokenizers):
            raise ValueError(f"--corpus {' '.join(names)}: expected folders of the same tokenizer.")
        self.tokenizer, self.document_token = tokenizers[0], files.document_token
        if weights is not None:
            files = TokenMixture(tuple(parts), tuple(weights))
        self.train, validation = self._split(files, min_length)
        self.validation = spread_over(validation, document_token=self.document_token)
        self.held_out = self.held_out_text = None
        if held_out:
            self.train, held_out_part = self._split(self.train, min_length)
            self.held_out = spread_over(held_out_part, document_token=self.document_token)
            self.held_out_text = decode_documents(self.tokenizer, self.held_out)
        self.train_text = decode_documents(self.tokenizer, self.train[:MAX_TOKENS_AS_TEXT])
        self.scored, self.validation_text = self.validation, decode_documents(self.tokenizer, self.validation)

    def _split(self, files, min_length):
        if isinstance(files, TokenMixture):
            pairs = [self._split(part, min_length) for part in files.parts]
            return tuple(TokenMixture(parts, files.weights) for parts in zip(*pairs, strict=True))
        try:
            parts = files.split()
        except ValueError:  # one document
            parts = files.split(by="tokens") if len(files) > 1 else (files, files[:0])
        if min(map(len, parts)) < min_length:
            raise CorpusError(
                f"The corpus {self.corpus.name!r} is too short: its parts have {len(parts[0])} and {len(parts[1])} "
                f"tokens, and a window has {min_length}; prepare more documents or choose a smaller context."
            )
        return parts

    def hold_out_ids(self, min_length: int) -> tuple[TokenFiles | TokenMixture, np.ndarray]:
        """Return the training part without its last tenth, and the ids of that tenth."""
        train, held_out = self._split(self.train, min_length)
        return train, spread_over(held_out, document_token=self.document_token)

    def introduce(self, *args, **kwargs):
        """Print what is true of a text, too, and a note if the folders have lost text."""
        super().introduce(*args, **kwargs)
        if self.unknown:
            print(
                f"Note: {self.unknown:.1%} of the tokens are [UNK]. Losses per character count the characters of this "
                "word, not of what it stands for."
            )

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of a text, in which U+001E begins a document, `[N]`."""
        return encode_documents(self.tokenizer, text)


def split_corpus(
    name: Any, folder: pathlib.Path, min_length: int = 2, held_out: bool = False, **options
) -> SplitCorpus:
    """Return the `SplitCorpus` of a text, with options of `load_corpus`, or the `SplitTokens` of folders of ids."""
    names, weights = weighted_names([name] if isinstance(name, str) else name)
    if (weights is None and not any(map(is_prepared, names))) or any(options.values()):
        return SplitCorpus(name, folder, min_length, held_out, **options)
    if not all(map(is_prepared, names)):
        other = next(name for name in names if not is_prepared(name))
        expected = "folders of one kind, each of keras-seq prepare"
        raise ValueError(f"--corpus {' '.join(names)}: {other} is no folder of token ids; expected {expected}.")
    return SplitTokens(names, folder, min_length, held_out, weights)


def spread_over(
    ids: TokenFiles | TokenMixture, count: int = MAX_TOKENS_AS_TEXT, document_token: int | None = None
) -> np.ndarray:
    """Read at most `count` ids, `[<= count]`: all, or 128 stretches that are spread evenly, each a document."""
    if isinstance(ids, TokenMixture):
        counts = ids.counts(count)
        return np.concatenate([spread_over(part, n, document_token) for part, n in zip(ids.parts, counts, strict=True)])
    if len(ids) <= count or count < MAX_STRETCHES:
        return ids[:count]
    starts = spread_edges(len(ids), MAX_STRETCHES)[:-1].tolist()
    stretches = np.stack([ids[start : start + count // MAX_STRETCHES] for start in starts])
    if document_token is not None:
        stretches[:, 0] = document_token
    return stretches.reshape(-1)


def random_windows(ids, batch_size: int, sequence_length: int, seed: int) -> RandomWindows | MixedWindows:
    """Return the `RandomWindows` of ids, or the `MixedWindows` of a `TokenMixture`."""
    if not isinstance(ids, TokenMixture):
        return RandomWindows(ids, batch_size, sequence_length, seed=seed)
    sources = [RandomWindows(part, batch_size, sequence_length, seed=seed) for part in ids.parts]
    return MixedWindows(sources, ids.weights, seed=seed)


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
    """Return, as the end of a sentence, which part of a validation text is scored during training; "" for all of it."""
    total = len(validation)
    part = train.validated_characters(total, min_length)
    if part == total:
        return ""
    unit = "characters" if isinstance(validation, str) else "tokens"
    return f"; validating on {spread_note(part, total, unit)} during training, on all of them at the end"


def spread_note(part: int, total: int, unit: str = "characters") -> str:
    """Return how much of a text a sample has."""
    return f"{part:,} {unit} spread over {total:,}"

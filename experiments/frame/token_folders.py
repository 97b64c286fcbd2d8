"""The corpus of an experiment that reads ids: a text, or folders of token ids that may be larger than memory.

    --corpus FOLDER [FOLDER ...]      of `python -m experiments.prepare`: training reads its windows from the files
    --corpus 0.7:FOLDER 0.3:FOLDER    the same with weights: token_mixture.py

The validation part begins with the first document after nine tenths of the ids. Of a large one, stretches that are
spread evenly over it are scored, each of which begins a document. Baselines and the search for copied passages see the
beginning of the training part.
"""

import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.frame.runs import check_same_corpus
from experiments.frame.texts import SplitCorpus
from experiments.frame.token_mixture import TokenMixture, weighted_names
from keras_seq.data import Corpus, CorpusError, PackedDocuments, TokenFiles
from keras_seq.data.token_files import concatenated
from keras_seq.data.token_shards import TOKENIZER_NAME, is_prepared, read_index
from keras_seq.evaluation.validation_sample import MAX_STRETCHES, spread_edges
from keras_seq.tokenizers import load_tokenizer
from keras_seq.tokenizers.document_token import decode_documents, encode_documents

MAX_TOKENS_AS_TEXT = 1 << 20  # of each part that is decoded
MAX_VERIFIED_BYTES = 1 << 30  # a second; --verify of experiments.prepare reads larger folders


def split_corpus(
    name: Any, folder: pathlib.Path, min_length: int = 2, held_out: bool = False, **options
) -> SplitCorpus:
    """Return the `SplitCorpus` of a text, or the `SplitTokens` of folders of token ids.

    Args:
        name: Name or path of the corpus, or several of them.
        folder: Folder of the runs, which must have been trained on the same corpus.
        min_length: Fewest tokens of each part.
        held_out: Whether to cut a held-out part from the training part.
        **options: Keyword arguments of `load_corpus`, for a text.

    Raises:
        ValueError: As `SplitCorpus` and `SplitTokens` raise it.
    """
    names, weights = weighted_names([name] if isinstance(name, str) else name)
    if (weights is None and not any(map(is_prepared, names))) or any(options.values()):
        return SplitCorpus(name, folder, min_length, held_out, **options)
    if not all(map(is_prepared, names)):
        raise ValueError(
            f"--corpus {' '.join(names)}: {next(name for name in names if not is_prepared(name))} is no folder of "
            "token ids; expected folders of one kind, each of python -m experiments.prepare."
        )
    return SplitTokens(names, folder, min_length, held_out, weights)


def packed_documents(ids: Any, **sizes: int) -> PackedDocuments:
    """Return the `PackedDocuments` of token files.

    Raises:
        ValueError: The ids are those of a text, which does not say where documents begin.
    """
    if not isinstance(ids, TokenFiles):
        raise ValueError(
            "--recurrent-windows or --transformer-windows packed: expected a --corpus of folders that python -m "
            "experiments.prepare wrote, which say where documents begin."
        )
    return PackedDocuments(ids, **sizes)


class SplitTokens(SplitCorpus):
    """Folders of token ids, split into a training, held-out and validation part.

    `train` are `TokenFiles`, or a `TokenMixture` of weighted folders, each of which is split. `held_out` and
    `validation` are at most `MAX_TOKENS_AS_TEXT` ids, spread over their parts.

    Args:
        names: The folders, all of one tokenizer.
        folder: Folder of the runs, which must have been trained on the same folders.
        min_length: Fewest tokens of each part.
        held_out: Whether to cut a held-out part from the training part.
        weights: Weights of the folders, which make them a mixture; by default they are joined.

    Raises:
        ValueError: A folder is damaged, is not that of the runs, or a part is shorter than `min_length`.
    """

    def __init__(
        self,
        names: Sequence[str],
        folder: pathlib.Path,
        min_length: int = 2,
        held_out: bool = False,
        weights: Sequence[float] | None = None,
    ):
        parts = [TokenFiles.open(name) for name in names]
        files = concatenated(parts)
        digests = "".join(entry[key] for entry in map(read_index, names) for key in ("sha256", "tokenizer_sha256"))
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
        self.validation_text = decode_documents(self.tokenizer, self.validation)

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

    def hold_out_ids(self, min_length: int) -> tuple[TokenFiles | TokenMixture, str]:
        """Return the training part without its last tenth, and the text of that tenth."""
        train, held_out = self._split(self.train, min_length)
        return train, decode_documents(self.tokenizer, spread_over(held_out, document_token=self.document_token))

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of a text, in which U+001E begins a document, `[N]`."""
        return encode_documents(self.tokenizer, text)


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

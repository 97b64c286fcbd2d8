"""Read from the curves of `experiments.word_lm` the best validation, the end, and both runs at equal positions."""

import math
import pathlib
import re
from collections.abc import Sequence

import numpy as np

from experiments.frame.texts import SplitCorpus
from keras_seq.tokenizers import split_words
from keras_seq.tracking.summaries import SAMPLE, scored_key
from keras_seq.training import read_metrics
from keras_seq.training.metrics_logger import LOSS_KEYS


def corpus_info(data: SplitCorpus, sequence_length: int) -> dict:
    """Return the sizes of a corpus that is long enough for windows of this length, and its rates of [UNK]."""
    num_words = sum(re.match(r"\w", token) is not None for token in split_words(data.validation_text))
    if len(data.validation) <= sequence_length or not num_words:
        raise ValueError(
            f"The validation split has {len(data.validation)} tokens, {num_words} of them words; expected more than "
            f"{sequence_length} tokens and at least one word: give a longer text."
        )
    return {
        "corpus": data.corpus.name,
        "train_split_tokens": len(data.train),
        "validation_split_tokens": len(data.validation),
        "vocabulary_size": data.tokenizer.vocabulary_size,
        "train_oov_rate": float((data.train == 0).mean()),
        "validation_oov_rate": float((data.validation == 0).mean()),
        "tokens_per_word": len(data.validation) / num_words,
    }


def with_curve_findings(folder: pathlib.Path, row: dict, tokens_per_word: float) -> dict:
    """Return a run's row with its best and its last validation, in perplexity per token or per word."""
    lines = read_metrics(folder / row["run"], "validation")
    validation = [{name.removesuffix(SAMPLE): value for name, value in line.items()} for line in lines]
    best = min(validation, key=lambda line: line["val_loss"])
    return {
        **row,
        "epochs": row["train_tokens"] / row["tokens_per_epoch"],
        "best": {
            "tokens": best["tokens"],
            "epochs": best["tokens"] / row["tokens_per_epoch"],
            "perplexity": math.exp(best["val_loss"]),
            "perplexity_streaming": math.exp(best["val_loss_streaming"]),
            "val_word_perplexity": math.exp(best["val_loss"] * tokens_per_word),
            "val_bits_per_character": best["val_bits_per_character"],
        },
        "train_perplexity": math.exp(row["train_loss"]),
        "perplexity": math.exp(validation[-1]["val_loss"]),
    }


def at_equal_positions(folder: pathlib.Path, rows: Sequence[dict]) -> dict[str, list[float]]:
    """Return the training and validation perplexity of each run after equal epochs, then after equal tokens."""
    curves, tokens_per_epoch = [], []
    for row in rows:
        for split, key in LOSS_KEYS.items():
            points = [
                (line["tokens"], line[scored_key(key, line)]) for line in read_metrics(folder / row["run"], split)
            ]
            curves.append([*zip(*points, strict=True)])
            tokens_per_epoch.append(row["tokens_per_epoch"])
    epochs = range(1, int(min(row["epochs"] for row in rows)) + 1)
    positions = {f"epoch {epoch}": [epoch * tokens for tokens in tokens_per_epoch] for epoch in epochs}
    for tokens in (fraction * rows[0]["train_tokens"] for fraction in (0.125, 0.25, 0.5, 1.0)):
        positions[f"{tokens:,.0f} tokens"] = [tokens] * len(curves)
    first = max(tokens[0] for tokens, _ in curves)
    return {
        name: [math.exp(np.interp(position, *curve)) for position, curve in zip(at, curves, strict=True)]
        for name, at in positions.items()
        if min(at) >= first
    }


def verdict(rows: Sequence[dict]) -> str:
    """Say where both curves have their minimum and where they end, and how certain that is."""
    minima = [
        f"{row['best']['perplexity']:.1f} on {row['windows']} windows, after {row['best']['epochs']:.1f} epochs"
        for row in rows
    ]
    ends = " and ".join(f"{row['perplexity']:.1f}" for row in rows)
    return (
        f"The lowest perplexity is {', and '.join(minima)}; after {rows[0]['train_tokens']:,} tokens it is {ends}. One "
        "seed each: differences of a few percent may be chance."
    )

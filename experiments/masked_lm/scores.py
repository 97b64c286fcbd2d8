"""Scores of an encoder for masked language modeling, and its predictions.

loss = mean over the masked positions of -log softmax(logits)[target]
"""

from collections.abc import Callable, Sequence

import keras
import numpy as np
from keras import ops

from experiments.masked_lm.data import MASK, MaskedRows, encode_masked
from keras_seq.evaluation.losses import token_losses
from keras_seq.evaluation.progress_bar import track_progress
from keras_seq.ops.compiled import compiled
from keras_seq.tokenizers import SPECIAL_TOKENS, WordPieceTokenizer
from keras_seq.tracking import Summaries

TOP = 5  # of top-5 accuracy
BATCH_SIZE = 64  # rows scored at a time


def validator(model: keras.Model, tokenizer: WordPieceTokenizer, texts: Sequence[str]) -> Callable:
    """Return the function from `MaskedRows` to the scores at their masked tokens and the predictions for the texts."""

    def losses_and_ranks(inputs, targets):
        """Compute -log p of the targets, and the number of ids with a higher logit: `[B, T]` each."""
        logits = model(inputs, training=False)
        target_logits = ops.take_along_axis(logits, targets[..., None], axis=-1)
        return token_losses(logits, targets), ops.sum(ops.cast(logits > target_logits, "int32"), axis=-1)

    compute = compiled(losses_and_ranks, model, reduce_retracing=True)

    def validate(rows: MaskedRows) -> Summaries:
        scores = []
        for start in track_progress(range(0, len(rows.targets), BATCH_SIZE), rows.targets.size):
            batch = slice(start, start + BATCH_SIZE)
            inputs = {name: values[batch] for name, values in rows.inputs.items()}
            is_masked = rows.is_masked[batch]
            results = map(ops.convert_to_numpy, compute(inputs, rows.targets[batch]))
            scores.append([values[is_masked] for values in results])
        losses, ranks = map(np.concatenate, zip(*scores, strict=True))
        scalars = {
            "val_loss": float(losses.mean(dtype="float64")),
            "accuracy": float(np.mean(ranks == 0)),
            "top5_accuracy": float(np.mean(ranks < TOP)),
        }
        return Summaries(scalars, {"predictions": "\n".join(filled(model, tokenizer, text) for text in texts)})

    return validate


def filled(model: keras.Model, tokenizer: WordPieceTokenizer, text: str, top: int = TOP) -> str:
    """Return the text and, on a line for each [MASK], the most likely tokens and their probabilities."""
    row = encode_masked(text, tokenizer, model.get_layer("token_id_check").context_length)
    (logits,) = ops.convert_to_numpy(model(row, training=False)).astype("float64")
    lines = [text]
    for position in np.flatnonzero(row["token_ids"][0] == SPECIAL_TOKENS[MASK]):
        probabilities = np.exp(logits[position] - np.logaddexp.reduce(logits[position]))
        likeliest = np.argsort(-probabilities)[:top]
        lines.append("    " + "   ".join(f"{tokenizer.vocabulary[n]} {probabilities[n]:.0%}" for n in likeliest))
    return "\n".join(lines)


def unigram_baseline(train: np.ndarray, targets: np.ndarray, vocabulary_size: int) -> dict[str, float]:
    """Score a prediction of ids `[M]` by the unigram frequencies of the training ids `[N]`, with add-one smoothing."""
    counts = np.bincount(train, minlength=vocabulary_size) + 1
    counts[list(SPECIAL_TOKENS.values())] = 0  # never masked
    order = np.argsort(-counts, kind="stable")
    return {
        "val_loss": float(-np.log(counts[targets] / counts.sum()).mean()),
        "accuracy": float(np.mean(targets == order[0])),
        "top5_accuracy": float(np.isin(targets, order[:TOP]).mean()),
    }

"""Models and scores of sequence reversal.

    second half   the ids after the separator; correct where argmax(logits) is the target
    first half    the letters before it, given that a letter comes:  loss = logsumexp(z_a over all letters a) - z_y

The inputs are the true ids (teacher forcing). Greedy generation of a causal model gets a sequence right exactly if
teacher forcing has all its ids right: up to the first mistake both have the same inputs.
"""

import dataclasses
import math

import keras
import numpy as np
from keras import ops

from experiments.sequence_reversal.settings import LETTERS, NON_CAUSAL, SequenceReversalConfig
from keras_seq.callbacks import AttentionMaps
from keras_seq.data.synthetic import Reversal
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.evaluation.losses import token_losses
from keras_seq.layers import TransformerBlock
from keras_seq.ops.compiled import compiled
from keras_seq.tracking import Summaries

VALIDATION, TEST = 2**40, 2**41  # added to the training seed, so that no sequence is shared
BATCH_SIZE = 250  # sequences scored at a time
MAX_LETTERS_IN_IMAGE = 7
SCORES = ("val_loss", "second_half_accuracy", "sequence_accuracy", "first_half_loss")


def build_model(settings: SequenceReversalConfig, name: str) -> keras.Model:
    """Build the model: a Transformer, an LSTM, or `NON_CAUSAL`."""
    dtype = settings.train.dtype_policy
    model = settings.model_config(name).build_model(settings.reversal.vocabulary_size, dtype=dtype)
    return remove_causal_mask(model) if name == NON_CAUSAL else model


def remove_causal_mask(model: keras.Model) -> keras.Model:
    """Rebuild a language model with attention to all positions as a functional one: `LanguageModel` refuses that."""
    ids = keras.Input((None,), dtype="int32")
    x = model.embedding(ids)
    for block in model.blocks:
        if isinstance(block, TransformerBlock):
            block = TransformerBlock.from_config({**block.get_config(), "causal": False})
        x = block(x)
    logits = model.embedding(x, reverse=True) if model.head is None else model.head(x)
    return keras.Model(ids, logits, name=NON_CAUSAL)


def batch_sums(logits, x, y, reversal: Reversal) -> np.ndarray:
    """Sum numerators and denominators of the scores, `[4, 2]`, of logits `[B, T, V]` for ids and targets `[B, T]`."""
    logits, has_target = ops.convert_to_numpy(ops.cast(logits, "float32")), y >= 0
    second_half = (np.cumsum(x == reversal.separator, axis=1) > 0) & has_target
    first_half = has_target & ~second_half & (y < reversal.alphabet_size)
    correct = logits.argmax(-1) == y
    ratios = (
        (losses(logits, y), has_target),
        (correct & second_half, second_half),
        (np.all(correct | ~second_half, axis=1), np.ones(len(x))),
        (losses(logits[..., : reversal.alphabet_size], np.where(first_half, y, -1)), first_half),
    )
    return np.array([[values.sum(dtype="float64") for values in ratio] for ratio in ratios])


def losses(logits, targets) -> np.ndarray:
    """Return -log p of targets `[B, T]`, 0 where a target is -1."""
    return ops.convert_to_numpy(token_losses(logits, targets))


def means(sums: np.ndarray) -> dict[str, float]:
    """Return the scores by name from sums `[4, 2]`."""
    return dict(zip(SCORES, (sums[:, 0] / sums[:, 1]).tolist(), strict=True))


def to_letters(row, reversal: Reversal) -> str:
    """Decode ids `[T]` as text, such as `<abc|cba>`."""
    symbols = LETTERS[: reversal.alphabet_size] + "|><"
    return "".join(symbols[i] for i in row)


class ReversalTask:
    """Sequence reversal for one model (`experiments.frame.tasks.Task`), whose logits are compiled once."""

    def __init__(self, model: keras.Model, settings: SequenceReversalConfig):
        self.model, self.settings, self.reversal = model, settings, settings.reversal
        self.loss, self.diagnostics = TokenCrossEntropy(), [self.attention]
        self.dataset, self.tokens_per_step = self.reversal.dataset, self.reversal.tokens_per_step
        self.logits = compiled(lambda ids: model(ids, training=False), model, reduce_retracing=True)

    def validate(self) -> Summaries:
        """Score sequences of the training lengths, and complete some of these and of other lengths."""
        max_length = self.reversal.max_length
        counts = (self.settings.validation_sequences, self.settings.seed + VALIDATION)
        sums = [self.sums(length, *counts) for length in range(1, max_length + 1)]
        sample = "\n".join(self.sample(length) for length in (max_length, max_length + 1, 2 * max_length))
        return Summaries(means(sum(sums)), {"sample": sample})

    def test(self) -> dict:
        """Score sequences of all training lengths together, and of each length up to twice the longest."""
        max_length, count = self.reversal.max_length, self.settings.test_sequences
        sums = [self.sums(length, count, self.settings.seed + TEST) for length in range(1, 2 * max_length + 1)]
        groups = [
            {"group": length, "trained": length <= max_length, "examples": count, **means(part)}
            for length, part in enumerate(sums, start=1)
        ]
        return {**means(sum(sums[:max_length])), "entropy": math.log(self.reversal.alphabet_size), "groups": groups}

    def attention(self) -> Summaries:
        """Return an image of each attention layer on a short sequence; none for a model without such a layer."""
        (row,) = self.rows(min(self.reversal.max_length, MAX_LETTERS_IN_IMAGE), 1)
        maps = AttentionMaps(row[None, :-1], to_letters(row[:-1], self.reversal))
        return dataclasses.replace(maps.compute_summaries(self.model), scalars={}, histograms={})

    def sums(self, length: int, count: int, seed: int) -> np.ndarray:
        """Sum numerators and denominators of the scores, `[4, 2]`, over this many sequences of one length."""
        batching = {"batch_size": min(BATCH_SIZE, count), "seed": seed + length}  # a different seed for each length
        reversal = dataclasses.replace(self.reversal.with_length(length), **batching)
        total = np.zeros((len(SCORES), 2))
        for step, remaining in enumerate(range(count, 0, -reversal.batch_size)):
            x, y = (ids[:remaining] for ids in reversal.batch(step))
            total += batch_sums(self.logits(x), x, y, reversal)
        return total

    def rows(self, length: int, count: int) -> np.ndarray:
        """Draw sequences of validation with this number of letters, from start to end: ids `[count, 2 length + 3]`."""
        seed = self.settings.seed + VALIDATION + length
        x, y = dataclasses.replace(self.reversal.with_length(length), batch_size=count, seed=seed).batch(0)
        return np.concatenate([x, y[:, -1:]], axis=1)

    def complete(self, prompts: np.ndarray) -> np.ndarray:
        """Complete `start a_1 ... a_L |`, ids `[B, L + 2]`, by greedy generation to ids `[B, 2 L + 3]`."""
        # Each step runs the model on the whole row, padded with end ids, which a causal model ignores.
        rows = np.pad(prompts, ((0, 0), (0, prompts.shape[1] - 1)), constant_values=self.reversal.end)
        for t in range(prompts.shape[1], rows.shape[1]):
            rows[:, t] = ops.convert_to_numpy(self.logits(rows[:, :-1])[:, t - 1]).argmax(-1)
        return rows

    def sample(self, length: int) -> str:
        """Return three sequences of one length, as the model completes them after the separator."""
        lines = [f"{length} letters{'' if length <= self.reversal.max_length else ', a length not trained on'}:"]
        rows = self.rows(length, 3)
        for target, generated in zip(rows, self.complete(rows[:, : length + 2]), strict=True):
            text, num_correct = to_letters(generated, self.reversal), (target == generated)[length + 2 :].sum()
            lines.append(f"    {text[: length + 2]} {text[length + 2 :]}   {num_correct} of {length + 1} correct")
        return "\n".join(lines)

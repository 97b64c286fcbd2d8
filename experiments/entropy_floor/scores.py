"""Synthetic texts with a known entropy floor, and the excess loss of a model above it.

    d[t] = loss of the model for token t - loss of the source for it          excess loss = mean of d

Given the past, the expected d[t] of a causal model is a relative entropy, which is never negative; the deviations from
it are a martingale difference sequence, so the mean of d over N tokens has the standard error s / sqrt(N), where s is
the standard deviation of d. A mean of more than 4 standard errors below zero is a leak: the model sees tokens that it
has to predict, or was trained on the validation text.
"""

import dataclasses
import math

import numpy as np

from keras_seq.baselines import KneserNeyNGrams
from keras_seq.data.synthetic import Grammar, MarkovChain
from keras_seq.tokenizers import CharacterTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_STANDARD_ERRORS = 4  # below the floor, by chance
MAX_NGRAM_ORDER = 8


@dataclasses.dataclass(frozen=True)
class ExcessLoss:
    """Excess of a loss over the loss of the source, in nats per token, and its standard error."""

    excess: float
    standard_error: float

    @classmethod
    def from_losses(cls, losses, source_losses):
        """Compute the excess loss from token losses.

        Args:
            losses: Losses of the model `[N]`.
            source_losses: Losses of the source for the same tokens `[N]`.
        """
        differences = np.asarray(losses, "float64") - source_losses
        return cls(float(differences.mean()), float(differences.std() / math.sqrt(len(differences))))

    @property
    def is_leak(self) -> bool:
        """Return whether the loss is below the floor by more than chance."""
        return self.excess < -MAX_STANDARD_ERRORS * self.standard_error

    def message(self, model: str, corpus: str) -> str:
        """Format the error message for a model that leaks.

        Args:
            model: Name of the model.
            corpus: Name of the text.
        """
        errors = -self.excess / self.standard_error if self.standard_error else math.inf
        return (
            f"{model} on {corpus} is {-self.excess:.4f} nats per token below the entropy floor, by {errors:.0f} "
            "standard errors: it sees tokens that it has to predict, or was trained on the validation text."
        )


class SyntheticCorpus:
    """Draw a training and a validation text from a source.

    Args:
        name: Name of the text.
        source: Source of the tokens; its loss is the entropy floor.
        characters: A character for each id.
        train_tokens: Tokens in the training text.
        validation_tokens: Tokens in the validation text.
        order: Order of the n-gram baseline; None for the best on the last tenth of the training text.
    """

    def __init__(
        self,
        name: str,
        source: MarkovChain | Grammar,
        characters: str,
        train_tokens: int,
        validation_tokens: int,
        order: int | None = None,
    ):
        self.name, self.source, self.tokenizer = name, source, CharacterTokenizer(characters)
        self.train_ids, self.ids = source.sample(train_tokens, seed=0), source.sample(validation_tokens, seed=1)
        self.source_losses = source.token_losses(self.ids)[1:]  # the first token is not predicted
        self.order = order or self._best_order()

    @property
    def source_loss(self) -> float:
        """Return the mean loss of the source on the validation text, in nats per token.

        It converges to the entropy rate as the text gets longer.
        """
        return float(self.source_losses.mean())

    def ngrams(self) -> ExcessLoss:
        """Compute the excess loss of an n-gram model of the training text."""
        ngrams = KneserNeyNGrams(self.train_ids, self.order, self.source.vocabulary_size)
        return ExcessLoss.from_losses(ngrams.token_losses(self.ids)[1:], self.source_losses)

    def _best_order(self):
        train_ids, dev_ids = np.split(self.train_ids, [9 * len(self.train_ids) // 10])
        losses = [
            KneserNeyNGrams(train_ids, n, self.source.vocabulary_size).token_losses(dev_ids).mean()
            for n in range(1, MAX_NGRAM_ORDER + 1)
        ]
        return 1 + int(np.argmin(losses))

"""Texts whose floor is known, and how far above it a loss is.

    d[t] = the model's nats of id t - the source's own nats of it          above the floor = mean of d

Given the past, the expected d[t] of a model that sees nothing else is a relative entropy, never below zero; what is
left is a martingale difference, so the mean of d over N ids has the standard error s / sqrt(N), s the deviation of d. A
mean more than 4 of them below zero is a leak: the model sees what it is to predict, or was trained on the text.
"""

import dataclasses
import math

import numpy as np

from keras_seq.baselines import KneserNeyNGrams
from keras_seq.data.synthetic import Grammar, MarkovChain
from keras_seq.tokenizers import CharacterTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
TOO_FAR = 4  # standard errors
LONGEST = 8  # of the n-grams that are tried


@dataclasses.dataclass(frozen=True)
class Gap:
    """How far a loss is above what is possible, in nats per id, and the standard error of that."""

    above: float
    standard_error: float

    @classmethod
    def of(cls, nats, true):
        """From the losses `[N]` of a model and those of the source, of the same ids."""
        differences = np.asarray(nats, "float64") - true
        return cls(float(differences.mean()), float(differences.std() / math.sqrt(len(differences))))

    @property
    def leaks(self) -> bool:
        """Whether it is below by more than chance."""
        return self.above < -TOO_FAR * self.standard_error

    def sentence(self, model, corpus) -> str:
        """What is wrong with a model that leaks."""
        errors = -self.above / self.standard_error if self.standard_error else math.inf
        return (
            f"{model} on {corpus} is {-self.above:.4f} nats below what the source itself allows, {errors:.0f} standard "
            "errors: it sees what it is to predict, or was trained on the text that it is scored on."
        )


class Corpus:
    """A text from a source, to train on, and another one to validate on.

    Args:
        name: what it is called.
        source: what draws it and knows its floor.
        characters: how its ids are written.
        train, validation: ids in each.
        order: of the n-grams that are held against the models; None for what is best on the end of the training text.
    """

    def __init__(self, name, source: MarkovChain | Grammar, characters, train, validation, order=None):
        self.name, self.source, self.vocabulary = name, source, CharacterTokenizer(characters)
        self.train_ids, self.ids = source.sample(train, seed=0), source.sample(validation, seed=1)
        self.true_nats = source.token_losses(self.ids)[1:]  # no model predicts the first id
        self.order = order or self._best_order()

    @property
    def floor(self) -> float:
        """The source's own loss on the validation text: close to the entropy rate, which a longer text has."""
        return float(self.true_nats.mean())

    def ngrams(self) -> Gap:
        """How far n-grams of the training text are above the floor."""
        ngrams = KneserNeyNGrams(self.train_ids, self.order, self.source.vocabulary_size)
        return Gap.of(ngrams.token_losses(self.ids)[1:], self.true_nats)

    def _best_order(self):
        train, held_out = np.split(self.train_ids, [9 * len(self.train_ids) // 10])
        losses = [
            KneserNeyNGrams(train, n, self.source.vocabulary_size).token_losses(held_out).mean()
            for n in range(1, LONGEST + 1)
        ]
        return 1 + int(np.argmin(losses))

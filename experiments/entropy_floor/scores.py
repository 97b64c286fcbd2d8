"""Synthetic texts with a known entropy floor, and the excess loss of models over it.

    d[t] = loss of the model for token t - loss of the source for it          excess loss = mean of d

Given the past, the expected d[t] of a causal model is a relative entropy, which is never negative; the deviations from
it are a martingale difference sequence, so the mean of d over N tokens has the standard error s / sqrt(N), where s is
the standard deviation of d.
"""

import dataclasses
import math
from collections.abc import Callable

import keras
import numpy as np

from experiments.entropy_floor.settings import LETTERS, EntropyFloorConfig
from keras_seq.baselines import KneserNeyNGrams
from keras_seq.data.synthetic import Grammar, MarkovChain, bracket_grammar
from keras_seq.evaluation import Evaluator
from keras_seq.generation import TextGenerator
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries

MAX_NGRAM_ORDER = 8


@dataclasses.dataclass(frozen=True, eq=False)
class SyntheticCorpus:
    """Ids of two texts of a source, and a character for each id."""

    name: str  # "markov" or "grammar"
    source: MarkovChain | Grammar
    tokenizer: CharacterTokenizer
    train: np.ndarray  # [N]
    validation: np.ndarray  # [M]
    source_losses: np.ndarray  # of the validation text, [M - 1] in nats: the first token is not predicted


def draw_corpus(config: EntropyFloorConfig, name: str) -> SyntheticCorpus:
    """Draw the texts of the Markov chain or the grammar, with as many training tokens as the steps read."""
    if name == "markov":
        source = MarkovChain(config.vocabulary_size, config.order, config.seed, config.concentration)
        characters = LETTERS[: config.vocabulary_size]
    else:
        source = bracket_grammar(num_letters=config.vocabulary_size, seed=config.seed)
        characters = source.terminals
    train = source.sample(config.steps * config.batch_size * config.sequence_length + 1, seed=0)
    validation = source.sample(config.validation_tokens, seed=1)
    source_losses = source.token_losses(validation)[1:]
    return SyntheticCorpus(name, source, CharacterTokenizer(characters), train, validation, source_losses)


def excess_loss(losses: np.ndarray, source_losses: np.ndarray) -> dict[str, float]:
    """Return the mean of losses `[N]` over those of the source `[N]`, in nats per token, and its standard error."""
    differences = np.asarray(losses, "float64") - source_losses
    standard_error = differences.std() / math.sqrt(len(differences))
    return {"excess_loss": float(differences.mean()), "standard_error": float(standard_error)}


def validator(model: keras.Model, corpus: SyntheticCorpus, config: EntropyFloorConfig) -> Callable:
    """Return the function from the sample of the validation text to score, None for all, to its scores and a text."""
    evaluator, generator = Evaluator(model), TextGenerator(model, corpus.tokenizer)

    def validate(sample):
        ids, source_losses = corpus.validation, corpus.source_losses
        if sample is None:
            losses = evaluator.streaming_token_losses(ids)
        else:
            losses = evaluator.stretch_token_losses(ids, sample).reshape(-1)
            source_losses = source_losses[sample.targets - 1]
        scalars = {
            "val_loss": evaluator.chunked_loss(ids, config.sequence_length, sample).mean,
            "val_loss_streaming": float(losses.mean(dtype="float64")),
            **excess_loss(losses, source_losses),
        }
        return Summaries(scalars, {"sample": generator(corpus.tokenizer.decode(ids[:1]), config.train.sample_length)})

    return validate


def ngram_scores(corpus: SyntheticCorpus, order: int) -> dict[str, float]:
    """Score an n-gram model of the training text."""
    ngrams = KneserNeyNGrams(corpus.train, order, corpus.source.vocabulary_size)
    losses = ngrams.token_losses(corpus.validation)[1:]
    return {"val_loss_streaming": float(losses.mean()), **excess_loss(losses, corpus.source_losses)}


def best_ngram_order(corpus: SyntheticCorpus) -> int:
    """Return the order whose n-grams have the lowest loss on the last tenth of the training text."""
    counted, held_out = np.split(corpus.train, [9 * len(corpus.train) // 10])
    losses = [
        KneserNeyNGrams(counted, order, corpus.source.vocabulary_size).token_losses(held_out).mean()
        for order in range(1, MAX_NGRAM_ORDER + 1)
    ]
    return 1 + int(np.argmin(losses))

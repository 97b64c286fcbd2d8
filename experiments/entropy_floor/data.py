"""Synthetic texts with a known entropy floor: the loss of their source, below which no expected loss can be."""

import dataclasses

import numpy as np

from experiments.entropy_floor.settings import LETTERS, EntropyFloorConfig
from keras_seq.data.synthetic import Grammar, MarkovChain, bracket_grammar
from keras_seq.tokenizers import CharacterTokenizer


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

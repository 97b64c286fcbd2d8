"""Settings of `experiments.entropy_floor`."""

import dataclasses
import string
from typing import Any, Literal

from experiments.frame.option_checks import check_options
from experiments.frame.settings import BatchSize, LogDir, Resume, Smoke, check_multiple, check_unique, num_steps
from keras_seq import training
from keras_seq.models import LANGUAGE_MODELS, MODELS

SOURCES = ("markov", "grammar")
LETTERS = string.ascii_lowercase


@dataclasses.dataclass(frozen=True)
class EntropyFloorConfig:
    """Train models on texts whose entropy rate is known."""

    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "transformer")
    """Models to train, in this order."""
    corpora: tuple[Literal[SOURCES], ...] = SOURCES
    """Texts to train on, in this order."""
    vocabulary_size: int = 8
    """V of the Markov chain, and the number of letters between the brackets of the grammar; at most 26."""
    order: int = 2
    """Number of previous tokens that the next token of the Markov chain depends on."""
    concentration: float = 0.5
    """Dirichlet concentration of the Markov chain's table; lower values give a lower entropy."""
    tokens: int = 819_200
    """Tokens that each model is trained on, each of them once."""
    validation_tokens: int = 50_000
    """Tokens to validate on."""
    width: int = 64
    """D of models with a residual stream, such as the Transformer, with 2 blocks; a multiple of 8. LSTM, GRU and RNN
    have one layer of 2 D units.
    """
    batch_size: BatchSize = 16
    sequence_length: int = 64
    """Sequence length T of the training windows, in tokens; also the Transformer's context length."""
    seed: int = 0
    """Random seed of the sources, the weights and the batches."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(validate_every=200, sample_length=120)
    )

    def __post_init__(self):
        check_options(self, vocabulary_size=2, order=1, tokens=100, batch_size=1, sequence_length=1)
        check_options(self, validation_tokens=self.sequence_length + 1)
        if self.concentration <= 0:
            raise ValueError(f"--concentration {self.concentration}: expected a number above zero.")
        if self.vocabulary_size > len(LETTERS):
            raise ValueError(f"--vocabulary-size {self.vocabulary_size}: expected at most {len(LETTERS)}.")
        check_multiple("--width", self.width, 8)
        check_unique("--models", self.models)
        check_unique("--corpora", self.corpora)

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        chosen = "markov" in self.corpora
        return {} if chosen else dict.fromkeys(("order", "concentration"), "markov among --corpora")

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return num_steps(self.tokens, self.batch_size * self.sequence_length)

    def model_config(self, name: str) -> Any:
        """Return the config of a language model at this width."""
        config_class = MODELS[name]
        if name in ("rnn", "gru", "lstm"):
            return config_class(embedding_dim=self.width // 2, units=2 * self.width)
        sizes = {"embedding_dim": self.width, "units": 2 * self.width, "feed_forward_dim": 4 * self.width}
        sizes |= {"num_layers": 2, "num_heads": 4, "context_length": self.sequence_length}
        return config_class(**{f.name: sizes[f.name] for f in dataclasses.fields(config_class) if f.name in sizes})


SMOKE = {
    "models": lambda models: models[:1],
    "vocabulary_size": 3,
    "order": 1,
    "tokens": 12 * 8 * 16,
    "validation_tokens": 400,
    "width": 8,
    "batch_size": 8,
    "sequence_length": 16,
    "train": {"warmup_steps": 2, "log_every": 3, "validate_every": 6, "checkpoint_every": 6, "sample_length": 20},
}

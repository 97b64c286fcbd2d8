"""Settings of `experiments.sequence_reversal`."""

import dataclasses
import string
from typing import Annotated, Literal

import tyro

from experiments.frame.option_checks import check_options
from experiments.frame.settings import LogDir, Resume, Smoke, check_unique
from keras_seq import training
from keras_seq.data.synthetic import Reversal
from keras_seq.models import LSTMConfig, TransformerConfig

LETTERS = string.ascii_lowercase + string.ascii_uppercase
NON_CAUSAL = "non_causal"  # a Transformer without a causal mask


@dataclasses.dataclass(frozen=True)
class SequenceReversalConfig:
    """Train models to output the reverse of a random sequence."""

    models: tuple[Literal["transformer", "lstm"], ...] = ("transformer", "lstm")
    """Models to train, in this order."""
    alphabet_size: int = 26
    """Number of different letters."""
    max_length: int = 20
    """Letters in the longest training sequence; the shortest has one. Tests go up to twice this length."""
    steps: int = 1500
    """Training steps of each model."""
    batch_size: int = 64
    """Sequences in a batch."""
    validation_sequences: int = 100
    """Sequences of each training length in a validation."""
    test_sequences: int = 1000
    """Sequences of each length in the final test, different from those of the validations."""
    broken_mask: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train a Transformer without a causal mask instead of the models; the causality check has to fail."""
    seed: int = 0
    """Random seed of the weights and sequences."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(default_factory=lambda: training.TrainConfig(validate_every=100))
    transformer: TransformerConfig = dataclasses.field(
        default_factory=lambda: TransformerConfig(64, num_layers=2, num_heads=2, feed_forward_dim=256)
    )
    lstm: LSTMConfig = dataclasses.field(default_factory=lambda: LSTMConfig(units=256))

    def __post_init__(self):
        check_options(self, max_length=1, steps=1, batch_size=1, validation_sequences=1, test_sequences=1)
        check_unique("--models", self.models)
        if not 2 <= self.alphabet_size <= len(LETTERS):
            raise ValueError(f"--alphabet-size {self.alphabet_size}: expected 2 to {len(LETTERS)} letters.")
        length = self.transformer.context_length
        if length is not None and length < self.longest_sequence:
            longest = f"{self.longest_sequence}, the length of the longest test sequences"
            raise ValueError(f"--transformer.context-length {length}: expected at least {longest}.")

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        return dict.fromkeys(("models", "lstm"), "no --broken-mask") if self.broken_mask else {}

    @property
    def reversal(self) -> Reversal:
        """The training sequences."""
        return Reversal(self.alphabet_size, 1, self.max_length, self.batch_size, self.seed)

    @property
    def longest_sequence(self) -> int:
        """Positions of the longest test sequences."""
        return self.reversal.with_length(2 * self.max_length).sequence_length

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names of the models to train."""
        return (NON_CAUSAL,) if self.broken_mask else self.models

    def model_config(self, name: str) -> TransformerConfig | LSTMConfig:
        """Return the config of a model, with a context length that fits the longest test sequences."""
        if name == "lstm":
            return self.lstm
        length = self.transformer.context_length or self.longest_sequence
        return dataclasses.replace(self.transformer, context_length=length)


SMOKE = {
    "alphabet_size": 4,
    "max_length": 3,
    "steps": 300,
    "batch_size": 64,
    "validation_sequences": 20,
    "test_sequences": 200,
    "train": {"warmup_steps": 4, "log_every": 25, "validate_every": 150, "checkpoint_every": 150},
    "transformer": {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 32},
    "lstm": {"embedding_dim": 16, "units": 32},
}

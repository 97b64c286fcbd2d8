"""Options of `experiments.sequence_reversal`: a frozen dataclass with a field for each option."""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments.frame.option_checks import check_options
from experiments.sequence_reversal.scores import LETTERS
from keras_seq import training
from keras_seq.data.synthetic import Reversal
from keras_seq.models import LSTMConfig, TransformerConfig

NON_CAUSAL = "non_causal"  # a Transformer without a causal mask


@dataclasses.dataclass(frozen=True)
class SmallTransformerConfig(TransformerConfig):
    """Config of a Transformer with two blocks, enough to find positions and to copy letters from them."""

    embedding_dim: int = 64
    """D, the width of the residual stream."""
    num_layers: int = 2
    """Number of blocks."""
    num_heads: int = 2
    """Attention heads in each block."""
    feed_forward_dim: int = 256
    """Width of the hidden layer of each block's feed-forward network."""


@dataclasses.dataclass(frozen=True)
class SmallLSTMConfig(LSTMConfig):
    """Config of an LSTM with three times the Transformer's parameters, since its state has to hold all letters."""

    units: int = 256
    """Width of each recurrent layer's output."""


@dataclasses.dataclass(frozen=True)
class TrainConfig(training.TrainConfig):
    """Training options with frequent validations, since the accuracy changes most in the first steps."""

    validate_every: int = 100
    """Steps between two validations, each with generated samples."""


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
    log_dir: str = "logs"
    """Folder for logs; the runs are written to LOG_DIR/sequence_reversal/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/sequence_reversal/UTC-TIME to resume. Options not given are read from its config.json."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    transformer: SmallTransformerConfig = dataclasses.field(default_factory=SmallTransformerConfig)
    lstm: SmallLSTMConfig = dataclasses.field(default_factory=SmallLSTMConfig)

    def __post_init__(self):
        check_options(self, max_length=1, steps=1, batch_size=1, validation_sequences=1, test_sequences=1)
        if not 2 <= self.alphabet_size <= len(LETTERS):
            raise ValueError(f"--alphabet-size {self.alphabet_size}: expected 2 to {len(LETTERS)} letters.")
        if not self.models:
            raise ValueError("--models: expected transformer, lstm or both.")
        context_length = self.transformer.context_length
        if context_length is not None and context_length < self.longest_task.sequence_length:
            raise ValueError(
                f"--transformer.context-length {context_length}: expected at least "
                f"{self.longest_task.sequence_length}, the length of the longest test sequences."
            )

    @property
    def task(self) -> Reversal:
        """Return the training task."""
        return Reversal(self.alphabet_size, 1, self.max_length, self.batch_size, self.seed)

    @property
    def longest_task(self) -> Reversal:
        """Return the task with the longest test sequences."""
        return self.task.with_length(2 * self.max_length)

    @property
    def model_names(self) -> tuple[str, ...]:
        """Return the names of the models to train."""
        return (NON_CAUSAL,) if self.broken_mask else self.models

    def model_config(self, name: str) -> SmallTransformerConfig | SmallLSTMConfig:
        """Return the config of a model, with a context length that fits the longest test sequences.

        Args:
            name: "transformer", "lstm" or "non_causal".
        """
        if name == "lstm":
            return self.lstm
        context_length = self.transformer.context_length or self.longest_task.sequence_length
        return dataclasses.replace(self.transformer, context_length=context_length)


def smoke_config(config: SequenceReversalConfig) -> SequenceReversalConfig:
    """Return the config with tiny sizes that take seconds."""
    return dataclasses.replace(
        config,
        alphabet_size=4,
        max_length=3,
        steps=300,
        batch_size=64,
        validation_sequences=20,
        test_sequences=200,
        train=dataclasses.replace(config.train, warmup_steps=4, log_every=25, validate_every=150, checkpoint_every=150),
        transformer=SmallTransformerConfig(embedding_dim=16, num_layers=1, num_heads=2, feed_forward_dim=32),
        lstm=SmallLSTMConfig(embedding_dim=16, units=32),
    )

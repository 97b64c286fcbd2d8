"""What `experiments.reverse` can be told: one frozen dataclass, whose fields are its options."""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments.options import check_options
from experiments.reverse_scores import LETTERS
from keras_seq import training
from keras_seq.data.synthetic import Reversal
from keras_seq.models import LSTMConfig, TransformerConfig

BROKEN = "broken"  # a Transformer without a causal mask


@dataclasses.dataclass(frozen=True)
class SmallTransformer(TransformerConfig):
    """Two layers are enough: the first tells positions, the second looks up letters."""

    embedding_dim: int = 64
    """D, the width of the residual stream."""
    num_layers: int = 2
    """Blocks on top of each other."""
    num_heads: int = 2
    """Attention heads in each block."""
    feed_forward_dim: int = 256
    """Width of the hidden layer of each block's feed-forward part."""


@dataclasses.dataclass(frozen=True)
class SmallLSTM(LSTMConfig):
    """Three times the parameters of the Transformer: all letters have to fit into its state."""

    units: int = 256
    """Width of each recurrent layer's output."""


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """Looks often, for much happens in the first steps."""

    validate_every: int = 100
    """Steps between two validations, each with samples of what the model writes."""


@dataclasses.dataclass(frozen=True)
class Reverse:
    """Train models to output the reverse of a random sequence."""

    models: tuple[Literal["transformer", "lstm"], ...] = ("transformer", "lstm")
    """Which models, in this order."""
    alphabet_size: int = 26
    """Different letters."""
    max_length: int = 20
    """Letters in the longest sequence trained on; the shortest has one. Tested up to twice as many."""
    steps: int = 1500
    """Batches that each model is trained on."""
    batch_size: int = 64
    """Sequences in a batch."""
    validation_sequences: int = 100
    """Sequences of each trained length at a validation."""
    test_sequences: int = 1000
    """Sequences of each length at the end, others than at validations."""
    broken_mask: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train, instead of the models, a Transformer whose attention sees the future: the check has to fail."""
    seed: int = 0
    """Of weights and sequences."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/reverse/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/reverse/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)
    transformer: SmallTransformer = dataclasses.field(default_factory=SmallTransformer)
    lstm: SmallLSTM = dataclasses.field(default_factory=SmallLSTM)

    def __post_init__(self):
        check_options(self, max_length=1, steps=1, batch_size=1, validation_sequences=1, test_sequences=1)
        if not 2 <= self.alphabet_size <= len(LETTERS):
            raise ValueError(f"--alphabet-size {self.alphabet_size}: expected from 2 to {len(LETTERS)} letters.")
        if not self.models:
            raise ValueError("--models: expected transformer or lstm or both.")
        context = self.transformer.context
        if context is not None and context < self.longest.sequence_length:
            raise ValueError(
                f"--transformer.context {context}: expected at least the {self.longest.sequence_length} of the longest test."
            )

    @property
    def task(self) -> Reversal:
        """The sequences to train on."""
        return Reversal(self.alphabet_size, 1, self.max_length, self.batch_size, self.seed)

    @property
    def longest(self) -> Reversal:
        """The longest sequences that are tested."""
        return self.task.with_length(2 * self.max_length)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the models to train."""
        return (BROKEN,) if self.broken_mask else self.models

    def model(self, name):
        """The dataclass of a model, its context filled in."""
        if name == "lstm":
            return self.lstm
        return dataclasses.replace(self.transformer, context=self.transformer.context or self.longest.sequence_length)


def tiny(settings: Reverse) -> Reverse:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        alphabet_size=4,
        max_length=3,
        steps=300,
        batch_size=64,
        validation_sequences=20,
        test_sequences=200,
        train=dataclasses.replace(
            settings.train, warmup_steps=4, log_every=25, validate_every=150, checkpoint_every=150
        ),
        transformer=SmallTransformer(embedding_dim=16, num_layers=1, num_heads=2, feed_forward_dim=32),
        lstm=SmallLSTM(embedding_dim=16, units=32),
    )

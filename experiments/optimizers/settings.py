"""Settings of `experiments.optimizers`."""

import dataclasses
from typing import Literal

from experiments.frame.option_checks import check_options
from experiments.frame.settings import (
    BatchSize,
    CorpusName,
    LogDir,
    Resume,
    Seed,
    SequenceLength,
    Smoke,
    check_multiple,
    check_unique,
    num_steps,
)
from keras_seq import training
from keras_seq.models import LSTMConfig, TransformerConfig


@dataclasses.dataclass(frozen=True)
class OptimizersConfig:
    """Train one model with every optimizer, at several learning rates."""

    model: Literal["transformer", "lstm"] = "transformer"
    """A Transformer of 2 blocks, or an LSTM of one layer."""
    width: int = 64
    """Width D of the Transformer, a multiple of 4; the LSTM has 2 D units."""
    optimizers: tuple[Literal[tuple(training.OPTIMIZERS)], ...] = tuple(training.OPTIMIZERS)
    """Optimizers to compare."""
    factors: tuple[float, ...] = (0.3, 1.0, 3.0)
    """Learning rates, as factors of each optimizer's default."""
    corpus: CorpusName = "pydoc"
    tokens: int = 460_800
    """Training tokens (characters) of every run, over one or more epochs."""
    batch_size: BatchSize = 12
    sequence_length: SequenceLength = 64
    seed: Seed = 0
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(validate_every=100, checkpoint_every=300)
    )

    def __post_init__(self):
        check_options(self, tokens=1, batch_size=1, sequence_length=1)
        check_multiple("--width", self.width, 4)
        check_unique("--optimizers", self.optimizers)
        check_unique("--factors", self.factors)
        if not all(factor > 0 for factor in self.factors):
            raise ValueError(f"--factors {' '.join(map(str, self.factors))}: expected positive numbers.")
        for field, option in (("optimizer", "--optimizers"), ("learning_rate", "--factors")):
            if getattr(self.train, field) != getattr(training.TrainConfig(), field):
                raise ValueError(f"{field}={getattr(self.train, field)}: expected the default; choose by {option}.")
        for name in self.optimizers:
            dataclasses.replace(self.train, optimizer=name)  # raises if an option is not for this one

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return num_steps(self.tokens, self.batch_size * self.sequence_length)

    @property
    def model_config(self) -> TransformerConfig | LSTMConfig:
        """The config that the model is built from."""
        if self.model == "lstm":
            return LSTMConfig(embedding_dim=self.width // 2, units=2 * self.width)
        return TransformerConfig(
            self.width, num_layers=2, num_heads=2, feed_forward_dim=4 * self.width, context_length=self.sequence_length
        )


SMOKE = {
    "width": 8,
    "optimizers": lambda names: names[-2:],
    "factors": lambda factors: factors[-1:],
    "tokens": 8 * 4 * 16,
    "batch_size": 4,
    "sequence_length": 16,
    "train": {"warmup_steps": 2, "log_every": 2, "validate_every": 4, "checkpoint_every": 8},
}

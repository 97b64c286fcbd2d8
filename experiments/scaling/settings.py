"""Settings of `experiments.scaling`, and five sizes of each family, about three times apart, alike within 2 %."""

import dataclasses
from typing import Literal

from experiments.frame.option_checks import check_options
from experiments.frame.settings import BatchSize, CorpusName, LogDir, Resume, Seed, SequenceLength, Smoke, check_unique
from experiments.frame.texts import smoke_corpus
from keras_seq import training
from keras_seq.models import LSTMConfig, TransformerConfig

SIZES = {
    "lstm": ((16, 48), (24, 86), (32, 140), (64, 256), (64, 412)),  # embedding_dim, units
    "transformer": ((32, 1, 1), (40, 2, 2), (64, 2, 2), (96, 3, 3), (128, 4, 4)),  # width, num_layers, num_heads
}
SMOKE_SIZES = {
    "lstm": ((4, 4), (4, 8), (8, 16), (8, 24)),
    "transformer": ((8, 1, 1), (12, 1, 1), (16, 1, 2), (24, 1, 2)),
}


@dataclasses.dataclass(frozen=True)
class ScalingConfig:
    """Train five sizes of two model families, and fit power laws to their losses."""

    corpus: CorpusName = "docstrings"
    families: tuple[Literal["lstm", "transformer"], ...] = ("lstm", "transformer")
    """Model families to train."""
    tokens: int = 460_800
    """Token budget: number of characters that each size is trained on, repetitions included."""
    compute: float = 3e11
    """Compute budget: floating-point operations (FLOPs) of the training of each size."""
    batch_size: BatchSize = 12
    sequence_length: SequenceLength = 64
    seed: Seed = 0
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(log_every=25, validate_every=1000)
    )

    def __post_init__(self):
        check_options(self, tokens=1, batch_size=1, sequence_length=1)
        check_unique("--families", self.families)
        if self.compute <= 0:
            raise ValueError(f"--compute {self.compute}: expected a number of FLOPs above zero, e.g. 4e11.")

    @property
    def models(self) -> list[tuple[str, LSTMConfig | TransformerConfig]]:
        """The family and the config of every model, the smallest of each family first."""
        sizes = SMOKE_SIZES if self.smoke else SIZES
        return [(family, self._model_config(family, *size)) for family in self.families for size in sizes[family]]

    def _model_config(self, family, width, *size):
        if family == "lstm":
            return LSTMConfig(width, *size)
        return TransformerConfig(width, *size, feed_forward_dim=4 * width, context_length=self.sequence_length)


SMOKE = {
    "corpus": smoke_corpus,
    "families": lambda families: families[:1],
    "tokens": 8 * 4 * 8,
    "compute": 6e6,
    "batch_size": 4,
    "sequence_length": 8,
    "train": {"log_every": 1, "validate_every": 8, "checkpoint_every": 8},
}

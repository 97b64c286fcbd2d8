"""Settings of `experiments.word_lm`."""

import dataclasses

from experiments.frame.option_checks import check_options
from experiments.frame.settings import BatchSize, CorpusName, LogDir, Resume, Seed, SequenceLength, Smoke
from keras_seq import training
from keras_seq.data import ShuffledWindows
from keras_seq.models import LSTMConfig

WINDOWS = ("disjoint", "overlapping")


@dataclasses.dataclass(frozen=True)
class WordLMConfig:
    """Train a word-level language model on disjoint and on overlapping windows."""

    corpus: CorpusName = "pydoc"
    min_count: int = 3
    """Minimum count of a token in the training split; rarer ones become [UNK]. With 1, [UNK] is not trained."""
    epochs: int = 8
    """Epochs over the disjoint windows. The overlapping ones get as many tokens, so OVERLAP times fewer epochs."""
    overlap: int = 4
    """Number of overlapping windows that contain each token."""
    batch_size: BatchSize = 16
    sequence_length: SequenceLength = 32
    seed: Seed = 0
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(
            learning_rate=0.01, final_lr_fraction=1.0, validate_every=100, sample_length=80
        )
    )
    lstm: LSTMConfig = dataclasses.field(
        default_factory=lambda: LSTMConfig(embedding_dim=128, units=256, tie_embeddings=True)
    )

    def __post_init__(self):
        check_options(self, min_count=1, epochs=1, batch_size=1, sequence_length=1)
        if self.overlap < 2 or self.sequence_length % self.overlap:
            raise ValueError(
                f"--overlap {self.overlap}: expected a divisor of --sequence-length {self.sequence_length}, at least 2."
            )

    def windows(self, kind: str, ids) -> ShuffledWindows:
        """Return the training windows of ids `[N]`; overlapping ones start every T / overlap tokens."""
        stride = self.sequence_length // (self.overlap if kind == "overlapping" else 1)
        return ShuffledWindows(ids, self.batch_size, self.sequence_length, stride, self.seed)


SMOKE = {
    "min_count": 20,
    "epochs": 1,
    "overlap": 2,
    "batch_size": 512,
    "sequence_length": 8,
    "train": {"warmup_steps": 4, "log_every": 7, "validate_every": 14, "checkpoint_every": 14, "sample_length": 20},
    "lstm": {"embedding_dim": 16, "units": 24},
}

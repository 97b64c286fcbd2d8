"""Settings of `experiments.loss_by_position`."""

import dataclasses

from experiments.frame.option_checks import check_options
from experiments.frame.settings import CorpusName, LogDir, Resume, Seed, Smoke, check_multiple, check_unique, num_steps
from experiments.frame.texts import smoke_corpus
from keras_seq import training
from keras_seq.models import LSTMConfig, TransformerConfig

FAMILIES = ("lstm", "transformer")


@dataclasses.dataclass(frozen=True)
class LossByPositionConfig:
    """Train two families at growing sequence lengths, and compare their losses by position."""

    corpus: CorpusName = "docstrings"
    sequence_lengths: tuple[int, ...] = (64, 128, 256, 512)
    """Sequence lengths T of the training windows, in characters: the smallest one times powers of 2."""
    tokens: int = 1_228_800
    """Characters that each model is trained on, over all epochs."""
    batch_tokens: int = 2048
    """Characters in a batch, at every sequence length."""
    seed: Seed = 0
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(default_factory=lambda: training.TrainConfig(checkpoint_every=250))
    lstm: LSTMConfig = dataclasses.field(default_factory=lambda: LSTMConfig(embedding_dim=64, units=256))
    transformer: TransformerConfig = dataclasses.field(
        default_factory=lambda: TransformerConfig(embedding_dim=96, num_layers=3, num_heads=3, feed_forward_dim=384)
    )

    def __post_init__(self):
        check_options(self, tokens=1, batch_tokens=1)
        check_unique("--sequence-lengths", self.sequence_lengths)
        option = f"--sequence-lengths {' '.join(map(str, self.sequence_lengths))}"
        if len(self.sequence_lengths) < 2:
            raise ValueError(f"{option}: expected two or more lengths.")
        smallest = min(self.sequence_lengths)
        doubled = {smallest * 2**k for k in range(32)}
        if smallest < 2 or smallest % 2 or not doubled.issuperset(self.sequence_lengths):
            raise ValueError(f"{option}: expected an even number and that number times powers of 2, e.g. 64 128 256.")
        check_multiple("--batch-tokens", self.batch_tokens, self.max_length)
        if self.transformer.context_length is not None:
            option = f"--transformer.context-length {self.transformer.context_length}"
            raise ValueError(f"{option}: expected none; it is set to each of the --sequence-lengths.")

    @property
    def max_length(self) -> int:
        """The longest sequence length."""
        return max(self.sequence_lengths)

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return num_steps(self.tokens, self.batch_tokens)

    def model_config(self, family: str, sequence_length: int) -> LSTMConfig | TransformerConfig:
        """Return the config of a model that is trained on windows of this length."""
        return self.lstm if family == "lstm" else dataclasses.replace(self.transformer, context_length=sequence_length)


SMOKE = {
    "corpus": smoke_corpus,
    "sequence_lengths": (8, 16),
    "tokens": 8 * 64,
    "batch_tokens": 64,
    "train": {"warmup_steps": 2, "log_every": 2, "validate_every": 4, "checkpoint_every": 8},
    "lstm": {"embedding_dim": 8, "units": 16},
    "transformer": {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 32},
}

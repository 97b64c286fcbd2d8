"""Settings of `experiments.space_restoration`."""

import dataclasses
from typing import Literal

from experiments.frame.option_checks import check_options
from experiments.frame.settings import (
    SMOKE_TRAIN,
    CorpusName,
    LogDir,
    Resume,
    Smoke,
    check_together,
    check_unique,
    options_of_a_training,
)
from experiments.space_restoration.models import EncoderConfig, LSTMConfig
from keras_seq import training
from keras_seq.data.synthetic.spacing_task import NUM_TAGS
from keras_seq.models import BertConfig, BiLSTMConfig

MODELS = ("lstm", "bilstm", "encoder", "bert")
OVERLAP = 4  # training windows that contain each character, per epoch


@dataclasses.dataclass(frozen=True)
class SpaceRestorationConfig:
    """Train taggers that restore spaces and capitals, and compare them."""

    corpus: CorpusName = "pydoc"
    models: tuple[Literal[MODELS], ...] = ("lstm", "bilstm", "encoder")
    """Taggers to train, in this order: lstm reads the left context, the others both sides."""
    characters: int = 1_200_000
    """Characters other than white space that each model is trained on, over all epochs."""
    batch_size: int = 16
    """Windows in a batch."""
    sequence_length: int = 128
    """Sequence length T of the windows, in characters."""
    seed: int = 0
    """Random seed of the weights, batches and dropout."""
    run: str | None = None
    """Folder of a finished run whose model restores --text; nothing is trained."""
    text: str | None = None
    """Text to restore with --run."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(default_factory=lambda: training.TrainConfig(validate_every=75))
    lstm: LSTMConfig = dataclasses.field(default_factory=LSTMConfig)
    bilstm: BiLSTMConfig = dataclasses.field(default_factory=lambda: BiLSTMConfig(NUM_TAGS, units=204, dropout=0.1))
    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)
    bert: BertConfig = dataclasses.field(
        default_factory=lambda: BertConfig(96, feed_forward_dim=368, context_length=128, num_segments=1)
    )

    def __post_init__(self):
        check_options(self, characters=1, batch_size=1, sequence_length=OVERLAP)
        check_unique("--models", self.models)
        check_together("--run", self.run, "--text", self.text)
        if (length := self.bert.context_length) < self.sequence_length:
            raise ValueError(f"--bert.context-length {length}: expected at least the --sequence-length.")
        if self.bilstm.num_tags != NUM_TAGS:
            expected = f"{NUM_TAGS}, a tag for every combination of space and capital"
            raise ValueError(f"--bilstm.num-tags {self.bilstm.num_tags}: expected {expected}.")

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        return {} if self.run is None else options_of_a_training(self)

    @property
    def steps(self) -> int:
        """Number of batches that contain `characters`."""
        return -(-self.characters // (self.batch_size * self.sequence_length))


SMOKE = {
    "characters": 20 * 8 * 16,
    "batch_size": 8,
    "sequence_length": 16,
    "train": SMOKE_TRAIN,
    "lstm": {"embedding_dim": 8, "units": 30},
    "bilstm": {"embedding_dim": 8, "units": 20},
    "encoder": {"embedding_dim": 20, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 40},
    "bert": {"embedding_dim": 20, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 40},
}

"""Settings of `experiments.shakespeare`."""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments.frame.option_checks import check_options
from experiments.frame.settings import SMOKE_TRAIN, CorpusName, LogDir, Resume, Smoke, check_unique
from keras_seq import checks, training
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.models import LlamaConfig, LSTMConfig

NORMUON_LEARNING_RATES = {"lstm": 0.03, "transformer": 0.02}  # the best of those tried, and the default
MODELS = tuple(NORMUON_LEARNING_RATES)


@dataclasses.dataclass(frozen=True)
class ShakespeareConfig:
    """Train a small model on tiny Shakespeare as well as ten minutes allow."""

    corpus: CorpusName = "shakespeare"
    models: tuple[Literal[MODELS], ...] = ("lstm",)
    """Model families to train, in this order."""
    num_seeds: int = 1
    """Number of seeds, and so of ensembles, per family; every member has a seed of its own."""
    num_members: int = 2
    """Number of models in an ensemble, whose probabilities are averaged."""
    tokens: int = 3_400_000
    """Number of characters that each member is trained on, repetitions included."""
    batch_size: int = 16
    """Batch size of the LSTM; the Transformer's has about the same number of characters."""
    sequence_length: int = 128
    """Sequence length T of the LSTM's training windows, in characters."""
    reset_prob: float = 0.25
    """Probability with which a row of the LSTM's batch starts from the zero state."""
    context_length: int = 256
    """Context length of the Transformer and length of its training windows and of all scored windows, in characters."""
    score_on_dev_split: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train without the last tenth of the training split and score that tenth, to choose options."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(
            "normuon",
            use_ema=True,
            precision="bfloat16",
            validate_every=500,
            checkpoint_every=500,
            sample_length=600,
        )
    )
    lstm: LSTMConfig = dataclasses.field(default_factory=lambda: LSTMConfig(units=450, dropout=0.3))
    transformer: LlamaConfig = dataclasses.field(default_factory=lambda: LlamaConfig(dropout=0.1))

    def __post_init__(self):
        check_options(self, num_seeds=1, num_members=1, tokens=1, batch_size=1, sequence_length=1, context_length=1)
        check_unique("--models", self.models)
        checks.number("--reset-prob", self.reset_prob, 0, 1)

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        return {} if "lstm" in self.models else {"reset_prob": "lstm among --models"}

    def model_config(self, name: str) -> LSTMConfig | LlamaConfig:
        """Return the config of a model, with its context length filled in."""
        transformer = dataclasses.replace(self.transformer, context_length=self.context_length)
        return self.lstm if name == "lstm" else transformer

    def train_config(self, name: str) -> training.TrainConfig:
        """Return the training config of a model, with its learning rate filled in."""
        if self.train.learning_rate is not None or self.train.optimizer != "normuon":
            return self.train
        return dataclasses.replace(self.train, learning_rate=NORMUON_LEARNING_RATES[name])

    def windows(self, name: str, ids, seed: int) -> StatefulWindows | RandomWindows:
        """Return the training windows of ids `[N]`; a batch of both families has about as many characters."""
        if name == "lstm":
            return StatefulWindows(ids, self.batch_size, self.sequence_length, reset_prob=self.reset_prob, seed=seed)
        batch_size = max(1, self.batch_size * self.sequence_length // self.context_length)
        return RandomWindows(ids, batch_size, self.context_length, seed=seed)


SMOKE = {
    "tokens": 20 * 4 * 32,
    "batch_size": 4,
    "sequence_length": 32,
    "context_length": 32,
    "train": {**SMOKE_TRAIN, "sample_length": 40},
    "lstm": {"embedding_dim": 16, "units": 32, "num_layers": 1},
    "transformer": {"embedding_dim": 16, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 32},
}

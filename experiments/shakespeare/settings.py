"""Define the options of `experiments.shakespeare` and their defaults."""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments.frame.option_checks import check_options
from keras_seq import training
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.models import LlamaConfig, LSTMConfig

MODELS = ("lstm", "transformer")
MUON_LEARNING_RATES = {"lstm": 0.05, "transformer": 0.02}  # the best of those tried, and the default


@dataclasses.dataclass(frozen=True)
class ShakespeareConfig:
    """Train a small model on tiny Shakespeare as well as ten minutes allow."""

    corpus: str = "shakespeare"
    """Training corpus: shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), docstrings, pydoc, or a UTF-8
    file."""
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
    log_dir: str = "logs"
    """Folder of the runs: LOG_DIR/shakespeare/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/shakespeare/UTC-TIME to resume. Options not given on the command line are read from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(
            precision="bfloat16", validate_every=500, checkpoint_every=500, sample_length=600
        )
    )
    lstm: LSTMConfig = dataclasses.field(default_factory=lambda: LSTMConfig(units=450, dropout=0.3))
    transformer: LlamaConfig = dataclasses.field(default_factory=lambda: LlamaConfig(dropout=0.1))

    def __post_init__(self):
        sizes = {"batch_size": 1, "sequence_length": 1, "context_length": 1}
        check_options(self, num_seeds=1, num_members=1, tokens=1, **sizes)
        if not 0 <= self.reset_prob <= 1:
            raise ValueError(f"--reset-prob {self.reset_prob}: expected a probability from 0 to 1.")
        if not self.models:
            raise ValueError(f"--models: expected at least one of {', '.join(MODELS)}.")

    def model_config(self, name: str) -> LSTMConfig | LlamaConfig:
        """Return the config of a model, with its context length filled in."""
        if name == "lstm":
            return self.lstm
        return dataclasses.replace(self.transformer, context_length=self.context_length)

    def train_config(self, name: str) -> training.TrainConfig:
        """Return the training config of a model, with its learning rate filled in."""
        rate = self.train.learning_rate
        if rate is None and self.train.optimizer == "muon":
            rate = MUON_LEARNING_RATES[name]
        return dataclasses.replace(self.train, learning_rate=rate)

    def windows(self, name: str, ids, seed: int) -> StatefulWindows | RandomWindows:
        """Return the training windows of one run; batches of both families have about as many characters.

        Args:
            name: Name of the model.
            ids: Ids of the training text, `[N]`.
            seed: Random seed of the windows.
        """
        if name == "lstm":
            return StatefulWindows(ids, self.batch_size, self.sequence_length, reset_prob=self.reset_prob, seed=seed)
        batch_size = max(1, self.batch_size * self.sequence_length // self.context_length)
        return RandomWindows(ids, batch_size, self.context_length, seed=seed)


def smoke_config(config: ShakespeareConfig) -> ShakespeareConfig:
    """Return the config at sizes that take seconds."""
    return dataclasses.replace(
        config,
        num_members=2,
        tokens=20 * 4 * 32,
        batch_size=4,
        sequence_length=32,
        context_length=32,
        train=dataclasses.replace(
            config.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10, sample_length=40
        ),
        lstm=dataclasses.replace(config.lstm, embedding_dim=16, units=32, num_layers=1),
        transformer=dataclasses.replace(
            config.transformer,
            embedding_dim=16,
            num_layers=2,
            num_heads=2,
            num_key_value_heads=2,
            feed_forward_dim=32,
        ),
    )

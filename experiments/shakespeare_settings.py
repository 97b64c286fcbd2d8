"""What `experiments.shakespeare` can be told, and what it is told by default."""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments.options import check_options
from keras_seq import training
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.models import LlamaConfig, LSTMConfig

MODELS = ("lstm", "transformer")
RATES = {"lstm": 0.05, "transformer": 0.02}  # Muon's: the LSTM's is the best tried, the other the default


@dataclasses.dataclass(frozen=True)
class Shakespeare:
    """Train a small model on tiny Shakespeare as well as ten minutes allow."""

    corpus: str = "shakespeare"
    """shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), docstrings, pydoc, or a UTF-8 file."""
    models: tuple[Literal[MODELS], ...] = ("lstm",)
    """Which families, in this order."""
    seeds: int = 1
    """How many times each is trained; its members have seeds of their own."""
    members: int = 2
    """Models of one family whose probabilities are averaged."""
    tokens: int = 3_400_000
    """Characters that each member is trained on, passes counted again."""
    batch_size: int = 16
    """Rows in a batch."""
    length: int = 128
    """Characters in a row of the LSTM's batches; the Transformer's rows have its context."""
    restart: float = 0.25
    """The fraction of the LSTM's rows that start from the zero state in a batch."""
    context: int = 256
    """Characters in a window that is scored, and the most that the Transformer attends to."""
    tune: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train without the last tenth of the training split and score that: for choosing anything."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/shakespeare/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/shakespeare/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfigConfig(
            precision="bfloat16", validate_every=500, checkpoint_every=500, sample_length=600
        )
    )
    lstm: LSTMConfig = dataclasses.field(default_factory=lambda: LSTMConfig(units=450, dropout=0.3))
    transformer: LlamaConfig = dataclasses.field(default_factory=lambda: LlamaConfig(dropout=0.1))

    def __post_init__(self):
        check_options(self, seeds=1, members=1, tokens=1, batch_size=1, length=1, context=1)
        if not 0 <= self.restart <= 1:
            raise ValueError(f"--restart {self.restart}: expected a fraction from 0 to 1.")
        if not self.models:
            raise ValueError(f"--models: expected at least one of {', '.join(MODELS)}.")

    def model(self, name):
        """The dataclass of a model, its context filled in."""
        return self.lstm if name == "lstm" else dataclasses.replace(self.transformer, context=self.context)

    def training(self, name) -> training.TrainConfig:
        """How a model is trained, its learning rate filled in."""
        rate = self.train.learning_rate
        if rate is None and self.train.optimizer == "muon":
            rate = RATES[name]
        return dataclasses.replace(self.train, learning_rate=rate)

    def windows(self, name, ids, seed):
        """The training batches of one run; a batch has about as many characters in both families."""
        if name == "lstm":
            return StatefulWindows(ids, self.batch_size, self.length, reset_prob=self.restart, seed=seed)
        rows = max(1, self.batch_size * self.length // self.context)
        return RandomWindows(ids, rows, self.context, seed=seed)


def tiny(settings: Shakespeare) -> Shakespeare:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        members=2,
        tokens=20 * 4 * 32,
        batch_size=4,
        length=32,
        context=32,
        train=dataclasses.replace(
            settings.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10, sample_length=40
        ),
        lstm=dataclasses.replace(settings.lstm, embedding_dim=16, units=32, num_layers=1),
        transformer=dataclasses.replace(
            settings.transformer,
            embedding_dim=16,
            num_layers=2,
            num_heads=2,
            num_key_value_heads=2,
            feed_forward_dim=32,
        ),
    )

"""What `experiments.compare` can be told: one frozen dataclass, whose fields are its options."""

import dataclasses
from typing import Annotated, Literal

import tyro

from keras_seq import training
from keras_seq.models import GPT, GRU, LANGUAGE_MODELS, LSTM, MODELS, RNN, Mamba, MinGRU, MinLSTM, Modern, Transformer
from keras_seq.models.language_model import SEES_THE_FUTURE


@dataclasses.dataclass(frozen=True)
class Compare:
    """Train models on the same text and compare their losses."""

    corpus: str = "pydoc"
    """pydoc (comes with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a UTF-8 file."""
    models: tuple[Literal[tuple(MODELS)], ...] = ("lstm", "transformer")
    """Which models, in this order."""
    seeds: int = 1
    """How many times each model is trained, with seeds 0, 1, ..."""
    tokens: int = 1_536_000
    """Characters that each model is trained on, passes counted again."""
    batch_size: int = 12
    """Rows in a batch."""
    context: int = 64
    """Characters in a row: the length of backpropagation through time, and the Transformer's context."""
    recurrent_windows: Literal["lanes", "crops"] = "lanes"
    """What recurrent models read: contiguous lanes, the state carried from batch to batch, or random crops."""
    attention_windows: Literal["crops", "lanes"] = "crops"
    """What Transformers read: random crops or contiguous lanes; they carry nothing."""
    restart: float = 0.25
    """The fraction of rows that start from the zero state in a batch of lanes, so that the model learns that too."""
    clean: Literal["squeeze"] | None = None
    """squeeze: strip all spaces and newlines from the text, as the 2017-style scripts did."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/compare/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/compare/UTC-TIME to go on with; all other options are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: training.Train = dataclasses.field(default_factory=training.Train)
    rnn: RNN = dataclasses.field(default_factory=RNN)
    gru: GRU = dataclasses.field(default_factory=GRU)
    lstm: LSTM = dataclasses.field(default_factory=LSTM)
    mingru: MinGRU = dataclasses.field(default_factory=MinGRU)
    minlstm: MinLSTM = dataclasses.field(default_factory=MinLSTM)
    mamba: Mamba = dataclasses.field(default_factory=Mamba)
    transformer: Transformer = dataclasses.field(default_factory=Transformer)
    gpt: GPT = dataclasses.field(default_factory=GPT)
    modern: Modern = dataclasses.field(default_factory=Modern)

    def __post_init__(self):
        for name in ("seeds", "tokens", "batch_size", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected at least 1.")
        if not 0 <= self.restart <= 1:
            raise ValueError(f"--restart {self.restart}: expected a fraction from 0 to 1.")
        if not self.models:
            raise ValueError(f"--models: expected at least one of {', '.join(LANGUAGE_MODELS)}.")
        for name in self.models:
            if name not in LANGUAGE_MODELS:
                raise ValueError(f"--models {name}: no language model can be made of it: {SEES_THE_FUTURE}")

    @property
    def steps(self) -> int:
        """Batches that hold the tokens."""
        return -(-self.tokens // (self.batch_size * self.context))

    def model(self, name):
        """The dataclass of a model, its context filled in."""
        model = getattr(self, name)
        if "context" not in {field.name for field in dataclasses.fields(model)}:
            return model
        if model.context is not None and model.context < self.context:
            raise ValueError(f"--{name}.context {model.context}: expected at least the --context {self.context}.")
        return dataclasses.replace(model, context=model.context or self.context)


TINY = {
    **{name: {"embedding_dim": 16, "units": 32} for name in ("rnn", "gru", "lstm")},
    **{
        name: {"embedding_dim": 16, "units": 24, "num_layers": 2, "feed_forward_dim": 32}
        for name in ("mingru", "minlstm")
    },
    "mamba": {"embedding_dim": 16, "num_layers": 2, "state_dim": 4},
    **{
        name: {"embedding_dim": 16, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 64}
        for name in ("transformer", "gpt", "modern")
    },
}


def tiny(settings: Compare) -> Compare:
    """The same comparison at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        tokens=20 * 4 * 32,
        batch_size=4,
        context=32,
        train=dataclasses.replace(
            settings.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10, sample_length=40
        ),
        **{name: dataclasses.replace(getattr(settings, name), **sizes) for name, sizes in TINY.items()},
    )

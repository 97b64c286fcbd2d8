"""What `experiments.compare` can be told: one frozen dataclass, whose fields are its options."""

import dataclasses
import math
from typing import Annotated, Literal

import tyro

from experiments.corpora import for_smoke
from experiments.options import check_options
from keras_seq import training
from keras_seq.models import (
    LANGUAGE_MODELS,
    MODELS,
    GPT2Config,
    GRUConfig,
    LlamaConfig,
    LSTMConfig,
    MambaConfig,
    MinGRUConfig,
    MinLSTMConfig,
    RNNConfig,
    TransformerConfig,
)
from keras_seq.models.language_model import NON_CAUSAL_MESSAGE


@dataclasses.dataclass(frozen=True)
class Compare:
    """Train models on the same text and compare their losses."""

    corpus: str = "docstrings"
    """docstrings or pydoc (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file."""
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
    match: Literal["parameters", "tokens", "flops", "seconds"] = "tokens"
    """What is the same for all: tokens; besides them the parameters (widths are changed to come closest to the first
    model's); or the training FLOPs or seconds that the first model spends on --tokens, the others' tokens following."""
    sweep: Literal["learning-rate"] | None = None
    """learning-rate: each model is first trained at several rates on the training text without its last tenth, scored
    on that tenth, and then compared at the best of its rates."""
    sweep_factors: tuple[float, ...] = (0.3, 1.0, 3.0)
    """The rates of the sweep, as factors of the one that each model would have without it."""
    sweep_tokens: int | None = None
    """Characters that each run of the sweep is trained on; by default as many as those that are compared."""
    strip_whitespace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Remove all spaces and newlines from the text, as some char-RNN scripts did."""
    profile: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Trace some training steps of each run with TensorFlow's profiler, for TensorBoard's Profile tab."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/compare/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/compare/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes, pydoc for docstrings: shows that everything works, and nothing else."""
    train: training.TrainConfig = dataclasses.field(default_factory=training.TrainConfig)
    rnn: RNNConfig = dataclasses.field(default_factory=RNNConfig)
    gru: GRUConfig = dataclasses.field(default_factory=GRUConfig)
    lstm: LSTMConfig = dataclasses.field(default_factory=LSTMConfig)
    mingru: MinGRUConfig = dataclasses.field(default_factory=MinGRUConfig)
    minlstm: MinLSTMConfig = dataclasses.field(default_factory=MinLSTMConfig)
    mamba: MambaConfig = dataclasses.field(default_factory=MambaConfig)
    transformer: TransformerConfig = dataclasses.field(default_factory=TransformerConfig)
    gpt: GPT2Config = dataclasses.field(default_factory=GPT2Config)
    modern: LlamaConfig = dataclasses.field(default_factory=LlamaConfig)

    def __post_init__(self):
        check_options(self, seeds=1, tokens=1, batch_size=1, context=1, sweep_tokens=1)
        if not all(0 < factor < math.inf for factor in self.sweep_factors) or not self.sweep_factors:
            given = " ".join(map(str, self.sweep_factors))
            raise ValueError(f"--sweep-factors {given}: expected numbers above zero, one at least.")
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"--models {' '.join(self.models)}: expected each model once.")
        if not 0 <= self.restart <= 1:
            raise ValueError(f"--restart {self.restart}: expected a fraction from 0 to 1.")
        if not self.models:
            raise ValueError(f"--models: expected at least one of {', '.join(LANGUAGE_MODELS)}.")
        for name in self.models:
            if name not in LANGUAGE_MODELS:
                raise ValueError(f"--models {name}: no language model can be made of it: {NON_CAUSAL_MESSAGE}")

    @property
    def steps(self) -> int:
        """Batches that hold the tokens."""
        return -(-self.tokens // (self.batch_size * self.context))

    def windows_for(self, model):
        """What kind of batches a model is trained on."""
        return self.recurrent_windows if model.context is None else self.attention_windows

    def carries(self, model):
        """Whether the state of a model goes from batch to batch."""
        return model.context is None and self.recurrent_windows == "lanes"

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
        for name in ("transformer", "gpt2", "llama")
    },
}


def tiny(settings: Compare) -> Compare:
    """The same comparison at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        corpus=for_smoke(settings.corpus),
        tokens=20 * 4 * 32,
        batch_size=4,
        context=32,
        train=dataclasses.replace(
            settings.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10, sample_length=40
        ),
        **{name: dataclasses.replace(getattr(settings, name), **sizes) for name, sizes in TINY.items()},
    )

"""Config of `experiments.compare`: one frozen dataclass, whose fields are the options of the command line."""

import dataclasses
import math
from typing import Annotated, Any, Literal

import keras
import tyro

from experiments.frame.corpora import for_smoke
from experiments.frame.option_checks import check_options
from experiments.frame.option_types import CorpusNames
from keras_seq import training
from keras_seq.models import (
    LANGUAGE_MODELS,
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


@dataclasses.dataclass(frozen=True)
class CompareConfig:
    """Train models on the same text and compare their losses."""

    corpus: CorpusNames = "docstrings"
    """Training text: docstrings or pydoc (included in Python), shakespeare (downloaded once, or read from the folder
    KERAS_SEQ_DATA), or UTF-8 files, folders of *.txt files, and patterns, which are joined."""
    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "transformer")
    """Models to train, in this order."""
    num_seeds: int = 1
    """Number of runs of each model, with the random seeds 0, 1, ..."""
    tokens: int = 1_536_000
    """Training tokens (characters) of each model, over one or more epochs."""
    batch_size: int = 12
    """Batch size B, in windows."""
    sequence_length: int = 64
    """Sequence length T of the training windows, in tokens: the length of backpropagation through time, and the
    context length of Transformers."""
    recurrent_windows: Literal["stateful", "random"] = "stateful"
    """Training windows of recurrent models. stateful: rows continue from batch to batch with the state carried.
    random: windows at random positions, each from the zero state."""
    transformer_windows: Literal["random", "stateful"] = "random"
    """Training windows of Transformers, which carry no state: at random positions, or rows that continue from batch to
    batch."""
    reset_prob: float = 0.25
    """Probability with which a row of stateful windows starts a batch from the zero state."""
    match: Literal["parameters", "tokens", "flops", "seconds"] = "tokens"
    """Equal budget. tokens: same number of training tokens. parameters: also scale widths to the first model's
    parameter count. flops, seconds: give every model the training FLOPs or time that the first one needs for
    --tokens."""
    sweep: Literal["learning-rate"] | None = None
    """learning-rate: first train each model at several learning rates on the training text without its last tenth,
    choose the rate with the lowest loss on that tenth, and compare the models at these rates."""
    sweep_factors: tuple[float, ...] = (0.3, 1.0, 3.0)
    """Learning rates of the sweep, as factors of each model's default."""
    sweep_tokens: int | None = None
    """Training tokens of each run of the sweep; as many as in the comparison by default."""
    strip_whitespace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Remove all spaces and newlines from the text, as many scripts of 2017 did."""
    profile: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Trace some training steps of each run with TensorFlow's profiler, for TensorBoard's Profile tab."""
    log_dir: str = "logs"
    """Folder of the runs: LOG_DIR/compare/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/compare/UTC-TIME to resume. Options not given on the command line are read from its
    config.json."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Test that everything works: seconds, tiny sizes, pydoc instead of docstrings."""
    train: training.TrainConfig = dataclasses.field(default_factory=training.TrainConfig)
    rnn: RNNConfig = dataclasses.field(default_factory=RNNConfig)
    gru: GRUConfig = dataclasses.field(default_factory=GRUConfig)
    lstm: LSTMConfig = dataclasses.field(default_factory=LSTMConfig)
    mingru: MinGRUConfig = dataclasses.field(default_factory=MinGRUConfig)
    minlstm: MinLSTMConfig = dataclasses.field(default_factory=MinLSTMConfig)
    mamba: MambaConfig = dataclasses.field(default_factory=MambaConfig)
    transformer: TransformerConfig = dataclasses.field(default_factory=TransformerConfig)
    gpt2: GPT2Config = dataclasses.field(default_factory=GPT2Config)
    llama: LlamaConfig = dataclasses.field(default_factory=LlamaConfig)

    def __post_init__(self):
        check_options(self, num_seeds=1, tokens=1, batch_size=1, sequence_length=1, sweep_tokens=1)
        if not all(0 < factor < math.inf for factor in self.sweep_factors) or not self.sweep_factors:
            factors = " ".join(map(str, self.sweep_factors))
            raise ValueError(f"--sweep-factors {factors}: expected one or more positive numbers.")
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"--models {' '.join(self.models)}: expected each model once.")
        if not 0 <= self.reset_prob <= 1:
            raise ValueError(f"--reset-prob {self.reset_prob}: expected a probability from 0 to 1.")
        if not self.models:
            raise ValueError(f"--models: expected at least one of {', '.join(LANGUAGE_MODELS)}.")

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return -(-self.tokens // (self.batch_size * self.sequence_length))

    def windows_for(self, model: keras.Model) -> str:
        """Return the kind of training windows of a model: "stateful" or "random"."""
        return self.recurrent_windows if model.context_length is None else self.transformer_windows

    def is_stateful(self, model: keras.Model) -> bool:
        """Return whether the state of a model is carried from batch to batch."""
        return model.context_length is None and self.recurrent_windows == "stateful"

    def model(self, name: str) -> Any:
        """Return the config of a model, with `context_length` set to `sequence_length` where it is None.

        Args:
            name: Key of `keras_seq.models.MODELS`.

        Raises:
            ValueError: The model's `context_length` is smaller than `sequence_length`.
        """
        model_config = getattr(self, name)
        if "context_length" not in {field.name for field in dataclasses.fields(model_config)}:
            return model_config
        limit = model_config.context_length
        if limit is not None and limit < self.sequence_length:
            expected = f"at least the --sequence-length {self.sequence_length}"
            raise ValueError(f"--{name}.context-length {limit}: expected {expected}.")
        return dataclasses.replace(model_config, context_length=limit or self.sequence_length)


SMOKE_SIZES = {
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


def smoke_config(config: CompareConfig) -> CompareConfig:
    """Return the same comparison at sizes that take seconds."""
    return dataclasses.replace(
        config,
        corpus=for_smoke(config.corpus),
        tokens=20 * 4 * 32,
        batch_size=4,
        sequence_length=32,
        train=dataclasses.replace(
            config.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10, sample_length=40
        ),
        **{name: dataclasses.replace(getattr(config, name), **sizes) for name, sizes in SMOKE_SIZES.items()},
    )

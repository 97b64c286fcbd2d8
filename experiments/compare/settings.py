"""Config of `experiments.compare`: one frozen dataclass, whose fields are the options of the command line."""

import dataclasses
import math
from typing import Annotated, Any, Literal

import keras
import tyro

from keras_seq import training
from keras_seq.commands.options import (
    SMOKE_TRAIN,
    BatchSize,
    CorpusName,
    LogDir,
    Resume,
    Smoke,
    check_options,
    check_unique,
    num_steps,
    with_models,
)
from keras_seq.models import LANGUAGE_MODELS, MODELS
from keras_seq.runs.texts import smoke_corpus
from keras_seq.runs.train import DEFAULT_TRAIN, TOKENS


@dataclasses.dataclass(frozen=True)
@with_models
class CompareConfig:
    """Train models on the same text and compare their losses."""

    corpus: CorpusName = "docstrings"
    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "transformer")
    """Models to train, in this order."""
    num_seeds: int = 1
    """Number of runs of each model, with the random seeds 0, 1, ..."""
    tokens: int = TOKENS
    """Training tokens (characters) of each model, over one or more epochs."""
    batch_size: BatchSize = 12
    sequence_length: int = 64
    """Sequence length T of the training windows, in tokens: the length of backpropagation through time, and the
    context length of Transformers."""
    recurrent_windows: Literal["stateful", "random", "packed"] | None = None
    """Training windows of recurrent models. stateful: rows continue from batch to batch with the state carried; the
    default if all of the text is read. random: windows at random positions, each from the zero state; the default of
    less than an epoch, of which stateful windows are a few stretches of the text. packed: documents of token files in
    random order, each token once in an epoch, each window from the zero state."""
    transformer_windows: Literal["random", "stateful", "packed"] = "random"
    """Training windows of Transformers, which carry no state: at random positions, rows that continue from batch to
    batch, or packed documents."""
    documents: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep the documents of token files apart: where one begins, states are reset, earlier positions are not attended
    to and positions begin at 0."""
    reset_prob: float = 0.25
    """Probability with which a row of stateful windows starts a batch from the zero state."""
    match: Literal["parameters", "tokens", "flops", "seconds"] = "tokens"
    """Equal budget. tokens: same number of training tokens. parameters: also scale widths to the first model's
    parameter count. flops, seconds: give every model the training FLOPs or time that the first one needs for
    --tokens."""
    sweep: Literal["learning-rate"] | None = None
    """learning-rate: first train each model at several learning rates on the training text without its last tenth,
    fit a parabola to the losses of that tenth over the rate's logarithm, and compare the models at their best rates."""
    sweep_factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    """Learning rates of the sweep, as factors of each model's default; a model that is best at the end of them is
    trained at further ones."""
    sweep_tokens: int | None = None
    """Training tokens of each run of the sweep; as many as in the comparison by default. Fewer favor rates that are too
    high for the comparison."""
    strip_whitespace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Remove all spaces and newlines from the text, as many scripts of 2017 did."""
    recall_steps: int = 300
    """Steps in which small models of the same kinds, of some 100,000 parameters, learn to recall pairs of a key and a
    value, which a loss does not show; 0: none."""
    profile: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Trace some training steps of each run with TensorFlow's profiler, for TensorBoard's Profile tab."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(default_factory=lambda: DEFAULT_TRAIN)

    def __post_init__(self):
        check_options(self, num_seeds=1, tokens=1, batch_size=1, sequence_length=1, sweep_tokens=1, recall_steps=0)
        check_unique("--models", self.models)
        check_unique("--sweep-factors", self.sweep_factors)
        if not all(0 < factor < math.inf for factor in self.sweep_factors):
            raise ValueError(f"--sweep-factors {' '.join(map(str, self.sweep_factors))}: expected positive numbers.")
        if not 0 <= self.reset_prob <= 1:
            raise ValueError(f"--reset-prob {self.reset_prob}: expected a probability from 0 to 1.")
        if self.sweep_tokens is not None and self.sweep_tokens > self.tokens:
            raise ValueError(f"--sweep-tokens {self.sweep_tokens}: expected at most the --tokens, {self.tokens}.")

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        unused = {}
        if self.sweep is None:
            unused |= dict.fromkeys(("sweep_factors", "sweep_tokens"), "--sweep learning-rate")
        have_context = (hasattr(MODELS[name], "context_length") for name in self.models)
        if self.recurrent_windows in ("random", "packed") or all(have_context):
            unused["reset_prob"] = "--recurrent-windows stateful and a recurrent model"
        return unused

    def check_resumed(self, saved: "CompareConfig"):
        """Raise a ValueError if the runs would get other learning rates than those with which they have begun."""
        if self.sweep is not None and self.tokens != saved.tokens:
            raise ValueError(f"--tokens {self.tokens}: expected {saved.tokens}, for which --sweep has found the rates.")

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return num_steps(self.tokens, self.batch_size * self.sequence_length)

    def windows_for(self, model: keras.Model) -> str:
        """Return the kind of training windows of a model: "stateful", "random" or "packed"."""
        return self.recurrent_windows if model.context_length is None else self.transformer_windows

    def model(self, name: str) -> Any:
        """Return the config of a model, with `context_length` set to `sequence_length` where it is None.

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


SMOKE = {
    "corpus": smoke_corpus,
    "tokens": 20 * 4 * 32,
    "batch_size": 4,
    "sequence_length": 32,
    "recurrent_windows": "stateful",  # as of a whole text
    "recall_steps": 20,
    "train": {**SMOKE_TRAIN, "sample_length": 40},
    **{name: MODELS[name].tiny for name in LANGUAGE_MODELS},
}

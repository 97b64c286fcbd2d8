"""Configure a training: one frozen dataclass, also a group of command-line options and a part of config.json.

Once the model and the steps are known, options that cannot be meant are refused. An option without effect is an error
if the result could be taken for another one; if only a short training leaves it without effect, it is a line on the
terminal.
"""

import dataclasses
import math
import typing
from typing import Literal

import keras

from keras_seq import checks
from keras_seq.layers.introspection import iter_layers
from keras_seq.layers.recurrent.base import RecurrentBase
from keras_seq.models import MODELS, LanguageModel

# Muon's are of models that are not registered: `register` has those of the others. The rest are the best of a sweep by
# factors of about 3 (experiments/optimizers.py): 0.1 million parameters (Transformer 2 x 64, LSTM of 128), 600 steps of
# 12 x 64 characters, warm-up and decay as below.
LEARNING_RATES = {
    "muon": {"recurrent": 0.02, "residual": 0.02},
    "normuon": {"recurrent": 0.02, "residual": 0.02},  # whose updates have the norm of Muon's
    "adamw": {"recurrent": 0.04, "residual": 4e-3},
    "adam": {"recurrent": 0.04, "residual": 4e-3},  # AdamW without weight decay, as in `optimizer_options`
    "sgd": {"recurrent": 3.0, "residual": 0.3},  # with momentum 0.9; about ten times as much without
    "adagrad": {"recurrent": 9.0, "residual": 0.3},  # high, because its sums start at 0.1 and only grow
    "rmsprop": {"recurrent": 0.06, "residual": 3e-3},
    "lion": {"recurrent": 0.012, "residual": 1.2e-3},
}
MAX_FLOAT32 = 3.4e38
MUONS = ("muon", "normuon")  # optimizers with an AdamW part
OF_OPTIMIZERS = {"adam_lr_ratio": MUONS, "weight_decay": (*MUONS, "adamw"), "beta_2": (*MUONS, "adam", "adamw")}
ADAM_LR_RATIOS = {"recurrent": 0.4, "residual": 0.2}
NS_STEPS = {"recurrent": 2, "residual": 3}  # of Muon; gates of 408 x 408 take long, and lose least with 2
MAX_STEPS_PER_EXECUTION = 1 if keras.backend.backend() == "torch" else 25  # Keras accepts no more with PyTorch
# Fields of TrainConfig that `compile_model` uses; a model that its user compiled has its own instead.
COMPILED_FIELDS = (
    *("optimizer", "learning_rate", "adam_lr_ratio", "weight_decay", "beta_2", "warmup_steps", "final_lr_fraction"),
    *("global_clipnorm", "gradient_accumulation_steps", "rematerialization", "use_ema", "ema_momentum", "precision"),
)
DTYPE_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def family(model: keras.Model) -> str:
    """Return "recurrent" for stacked recurrent layers, "residual" for blocks with a residual stream."""
    return "recurrent" if any(isinstance(layer, RecurrentBase) for layer in iter_layers(model)) else "residual"


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Set how a model is trained. Durations are in steps; a step is one batch.

    Raises:
        ValueError: If a value is out of its range, an option has no effect beside the others, such as `ema_momentum`
            without `use_ema`, or `checkpoint_every_seconds` is combined with a rollback.
    """

    optimizer: Literal["muon", "normuon", "adamw", "adam", "sgd", "adagrad", "rmsprop", "lion"] = "muon"
    """Optimizer of all weights; muon updates hidden matrices by Muon and all other weights by AdamW; normuon (NorMuon)
    also has the columns of a hidden matrix move equally far, for a slightly lower loss."""
    learning_rate: float | None = None
    """Peak learning rate. Defaults: muon and normuon 0.02, or 0.01 (gpt2, hawk, hybrid, kda, llama, mamba, mamba2,
    mingru, xlstm); adamw 0.04 (rnn, gru, lstm) or 0.004 (other models); all (LEARNING_RATES) are of small models."""
    adam_lr_ratio: float | None = None
    """With muon or normuon, learning rate of the AdamW part relative to `learning_rate`. Default: 0.4 (rnn, gru, lstm)
    or 0.2."""
    weight_decay: float | None = None
    """Decoupled weight decay of matrices, times the learning rate, with muon, normuon or adamw; None for none."""
    beta_2: float | None = None
    """Decay of the mean of squared gradients in adam, adamw and the AdamW part of muon and normuon. Default: 0.99 in
    these two, else 0.999."""
    warmup_steps: int = 50
    """Steps over which the learning rate rises linearly from zero."""
    final_lr_fraction: float = 0.02
    """Learning rate at the last step, after the linear decay, as a fraction of the peak."""
    global_clipnorm: float = 1.0
    """Maximum L2 norm of all gradients together; larger gradients are scaled down to it."""
    gradient_accumulation_steps: int | None = None
    """Steps whose mean gradient makes one update of the weights; None updates them at every step."""
    rematerialization: bool = False
    """Compute each residual block again for the gradient instead of storing it: less memory, more time."""
    use_ema: bool = False
    """Keep an exponential moving average of the weights. Validations, scores and the saved model use the average."""
    ema_momentum: float | None = None
    """With `use_ema`, the share of the old average in each new one. Default: 1 - 20 / steps, an average over about the
    last twentieth of the training."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Dtype of activations and matmuls; weights, softmax and losses are always float32."""
    log_every: int = 50
    """Steps between two points of the training curve."""
    validate_every: int = 250
    """Steps between two validations, each with a text sample."""
    validation_characters: int | None = 150_000
    """Characters of the validation split, spread evenly over it, to score during training; None scores all. The final
    scores are always over the whole split."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    checkpoint_every_seconds: float | None = None
    """Also save a checkpoint when this many seconds of wall-clock time have passed since the last one."""
    max_checkpoints_to_keep: int = 2
    """Number of recent checkpoints to keep; the best by validation loss is kept in addition, as best.safetensors."""
    patience: int | None = None
    """Stop after this many validations without a new best loss; None never stops early. The validation split then takes
    part in the selection of the model."""
    on_nan: Literal["stop", "rollback"] = "stop"
    """On a NaN or infinite loss or gradient: stop, or rollback: resume from the last checkpoint with half the learning
    rate, at most three times."""
    sample_length: int = 300
    """Tokens of a text sample."""
    tracker: Literal["tensorboard", "trackio", "wandb"] = "tensorboard"
    """Where curves, settings and text samples are logged: tensorboard, or there and by the package trackio or wandb."""

    def __post_init__(self):
        """Check the fields."""
        for field in dataclasses.fields(self):
            if typing.get_origin(field.type) is Literal:
                checks.one_of(field.name, getattr(self, field.name), typing.get_args(field.type))
        intervals = ("log_every", "validate_every", "checkpoint_every", "max_checkpoints_to_keep")
        for name in (*intervals, "patience", "validation_characters", "gradient_accumulation_steps"):
            if name in intervals or getattr(self, name) is not None:
                checks.positive_integer(name, getattr(self, name))
        for name in ("warmup_steps", "sample_length"):
            checks.non_negative_integer(name, getattr(self, name))
        if self.on_nan == "rollback" and self.checkpoint_every_seconds is not None:
            expected = "None with on_nan='rollback', or the run would depend on the time"
            raise ValueError(f"checkpoint_every_seconds={self.checkpoint_every_seconds!r}; expected {expected}.")
        for name in ("learning_rate", "adam_lr_ratio", "global_clipnorm", "checkpoint_every_seconds"):
            if getattr(self, name) is not None or name == "global_clipnorm":
                checks.positive_number(name, getattr(self, name))
        checks.number("final_lr_fraction", self.final_lr_fraction, 0, 1)
        checks.boolean("rematerialization", self.rematerialization)
        checks.boolean("use_ema", self.use_ema)
        if self.learning_rate is not None:
            checks.number("learning_rate", self.learning_rate, 0, MAX_FLOAT32)
        if self.ema_momentum is not None:
            checks.fraction("ema_momentum", self.ema_momentum)
            if not self.use_ema:
                raise ValueError(f"ema_momentum={self.ema_momentum!r}; expected None, or use_ema=True.")
        if self.weight_decay is not None:
            checks.number("weight_decay", self.weight_decay, 0)
        if self.beta_2 is not None:
            checks.fraction("beta_2", self.beta_2)
        for name, optimizers in OF_OPTIMIZERS.items():
            if (value := getattr(self, name)) is not None and self.optimizer not in optimizers:
                raise ValueError(f"{name}={value!r}; expected None, or optimizer={' or '.join(optimizers)}.")

    def validated_characters(self, total: int, min_characters: int = 2) -> int:
        """Return how many of the validation text's characters are scored during training, a window's at least."""
        size = self.validation_characters
        if size is not None and size < min_characters:
            expected = f"at least {min_characters:,}, a window and the next character, or None for all"
            raise ValueError(f"--train.validation-characters {size}: expected {expected}.")
        return total if size is None else min(size, total)

    def peak_learning_rate(self, model: keras.Model) -> float:
        """Return `learning_rate`, or the default for the optimizer and the model or its family."""
        if self.learning_rate is not None:
            return self.learning_rate
        name = next((layer.name for layer in iter_layers(model) if isinstance(layer, LanguageModel)), None)
        if self.optimizer in MUONS and name in MODELS:
            return MODELS[name].learning_rate
        return LEARNING_RATES[self.optimizer][family(model)]

    def resolved(self, model: keras.Model) -> dict[str, float | None]:
        """Return the values whose defaults depend on the model's family, by name."""
        ratio = ADAM_LR_RATIOS[family(model)] if self.adam_lr_ratio is None else self.adam_lr_ratio
        return {
            "learning_rate": self.peak_learning_rate(model),
            "adam_lr_ratio": ratio if self.optimizer in MUONS else None,
        }

    def optimizer_options(self, model: keras.Model, total_steps: int) -> dict:
        """Return the keyword arguments of the optimizer, except the learning rate, for a training of `total_steps`."""
        options = {"global_clipnorm": self.global_clipnorm}
        if self.optimizer == "sgd":
            options |= {"momentum": 0.9, "nesterov": True}
        if self.optimizer == "adamw":
            options["weight_decay"] = 0.0  # like Muon; Keras's default is 0.004
        if self.weight_decay is not None:
            options["weight_decay"] = self.weight_decay
        if self.beta_2 is not None:
            options["adam_beta_2" if self.optimizer in MUONS else "beta_2"] = self.beta_2
        if self.gradient_accumulation_steps is not None:
            options["gradient_accumulation_steps"] = self.gradient_accumulation_steps
        if self.use_ema:
            num_updates = max(1, total_steps // (self.gradient_accumulation_steps or 1))
            momentum = max(0.0, 1.0 - 20 / num_updates) if self.ema_momentum is None else self.ema_momentum
            options |= {"use_ema": True, "ema_momentum": momentum}
        if self.optimizer in MUONS:
            options["adam_lr_ratio"] = self.resolved(model)["adam_lr_ratio"]
            options["ns_steps"] = NS_STEPS[family(model)]
        if self.precision == "float16":
            # small gradients would underflow unscaled; the scale is halved where they overflow (guard.py)
            options["loss_scale_factor"] = 1024.0
        return options

    @property
    def dtype_policy(self) -> str:
        """Return the name of the Keras dtype policy of `precision`."""
        return DTYPE_POLICIES[self.precision]

    @property
    def steps_per_execution(self) -> int:
        """Return the largest divisor (at most MAX_STEPS_PER_EXECUTION) of all intervals, at which something happens."""
        return self.steps_per_execution_from(0)

    def steps_per_execution_from(self, step: int) -> int:
        """Return `steps_per_execution` that divides `step` too, for a run resumed between two intervals."""
        interval = math.gcd(self.log_every, self.validate_every, self.checkpoint_every, step)
        return max(n for n in range(1, MAX_STEPS_PER_EXECUTION + 1) if interval % n == 0)


class OptionError(ValueError):
    """Report an option of a training that does not fit its model or its number of steps."""


def check_options(training_model: keras.Model, train: TrainConfig, total_steps: int) -> None:
    """Refuse options of a training that do not fit the compiled model or the number of steps."""
    optimizer = training_model.optimizer
    accumulated = optimizer.accumulation_steps or 1
    if accumulated > total_steps:
        raise OptionError(
            f"gradient_accumulation_steps={accumulated} in a training of {total_steps} steps, which would change no "
            f"weight; expected at most {total_steps}, or more steps."
        )
    compiled = optimizer.train_config
    if compiled is None:
        return
    differ = [name for name in COMPILED_FIELDS if getattr(compiled, name) != getattr(train, name)]
    if differ:
        values = ", ".join(f"{name}={getattr(compiled, name)!r}" for name in differ)
        raise OptionError(f"{training_model.name} was compiled with {values}; expected the config of its training.")
    dtypes = {layer.compute_dtype for layer in iter_layers(training_model)}
    if (train.precision != "float32" or "float16" in dtypes) and train.precision not in dtypes:
        computed = " and ".join(sorted(dtype for dtype in dtypes if dtype is not None))
        raise OptionError(
            f"precision={train.precision!r}, but {training_model.name} computes in {computed}; build the model with "
            f"dtype={train.dtype_policy!r} (TrainConfig.dtype_policy), or change the precision."
        )


def words_of_no_effect(training_model: keras.Model, train: TrainConfig, total_steps: int) -> list[str]:
    """Return a sentence for each option that has no effect, or less than it says."""
    optimizer, words = training_model.optimizer, []
    if optimizer.train_config is None:
        defaults = TrainConfig()
        given = [name for name in COMPILED_FIELDS if getattr(train, name) != getattr(defaults, name)]
        if given:
            words.append(f"{training_model.name} is compiled: {', '.join(given)} of its TrainConfig have no effect.")
    rate = optimizer.get_config()["learning_rate"]
    warmup_steps = rate["config"].get("warmup_steps", 0) if isinstance(rate, dict) else 0
    if warmup_steps > total_steps:
        words.append(
            f"The warm-up of {warmup_steps} steps is longer than the training of {total_steps}: the learning rate ends "
            f"at {total_steps / warmup_steps:.0%} of its peak; train longer, or set a shorter --train.warmup-steps."
        )
    accumulated = optimizer.accumulation_steps or 1
    if rest := total_steps % accumulated:
        words.append(
            f"gradient_accumulation_steps={accumulated} does not divide the {total_steps} steps: the gradients of the "
            f"last {rest} change no weight."
        )
    validations = -(-total_steps // train.validate_every)
    if train.patience is not None and train.patience + 1 >= validations:
        words.append(
            f"patience={train.patience} cannot end a training of {validations} validations: expected fewer, or a "
            "smaller validate_every."
        )
    return words

"""How a model is trained: one frozen dataclass, also a group of command-line options and a part of config.json."""

import dataclasses
import math
from typing import Literal

from keras_seq import checks
from keras_seq.layers.introspection import has_time_loop

# Muon's are what measured best for each family on text held out from the training split, at 0.8 million parameters and
# 2,000 steps (JOURNAL.md). The others' are the best of a sweep by factors of about 3 (experiments/optimizers.py): 0.1
# million parameters (Transformer 2 x 64, LSTM of 128), 600 steps of 12 x 64 characters, warm-up and decay as below.
LEARNING_RATES = {
    "muon": {"recurrent": 0.03, "residual": 0.02},
    "adamw": {"recurrent": 0.04, "residual": 4e-3},
    "adam": {"recurrent": 0.04, "residual": 4e-3},  # AdamW without decay, which is how Train has it
    "sgd": {"recurrent": 3.0, "residual": 0.3},  # with momentum 0.9: ten times as much goes as far without
    "adagrad": {"recurrent": 9.0, "residual": 0.3},  # its sums start at 0.1 and only grow, so it wants much
    "rmsprop": {"recurrent": 0.06, "residual": 3e-3},
    "lion": {"recurrent": 0.012, "residual": 1.2e-3},
}
ADAM_RATIOS = {"recurrent": 0.4, "residual": 0.2}
DTYPE_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def family(model) -> str:
    """recurrent: recurrent layers on top of each other; residual: parts that add to a stream (Transformers, Mamba)."""
    return "recurrent" if has_time_loop(model) else "residual"


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Durations are in steps; a step is one batch."""

    optimizer: Literal["muon", "adamw", "adam", "sgd", "adagrad", "rmsprop", "lion"] = "muon"
    """muon moves hidden matrices by Muon and the rest by AdamW; each of the others moves everything."""
    learning_rate: float | None = None
    """The highest one. By default for muon 0.03 (rnn, gru, lstm) or 0.02 (the others), for adamw 0.04 or 0.004; all
    defaults (LEARNING_RATES) were measured on small models."""
    adam_lr_ratio: float | None = None
    """With muon, the learning rate of what AdamW moves, as a fraction of it. By default 0.4 (rnn, gru, lstm) or 0.2."""
    warmup_steps: int = 50
    """Steps over which the learning rate rises from zero."""
    final_lr_fraction: float = 0.02
    """What is left of the learning rate after its linear decay, at the last step."""
    global_clipnorm: float = 1.0
    """The longest gradient, over all weights together; longer ones are shortened to it."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of activations and matmuls; weights, softmax and losses are float32 always."""
    log_every: int = 50
    """Steps between two points of the training curve."""
    validate_every: int = 250
    """Steps between two validations, each with a sample of text."""
    validation_characters: int | None = 150_000
    """How much of a longer validation split is scored during training, always its beginning; None scores all of it.
    The final scores are those of all of it."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    checkpoint_every_seconds: float | None = None
    """A checkpoint also whenever so many seconds have passed since the last one."""
    max_checkpoints_to_keep: int = 2
    """How many of the last checkpoints are kept; the best by validation loss is kept besides, as best.safetensors."""
    patience: int | None = None
    """Training ends early after so many validations without a new best loss; by default it never does. The validation
    split then has a part in the choice of the model."""
    on_nan: Literal["stop", "rollback"] = "stop"
    """What follows a loss or gradient that is not a number: stop, or rollback: go back to the last checkpoint and on
    from there with half the learning rate, up to three times."""
    sample_length: int = 300
    """Characters in a sample of text."""

    def __post_init__(self):
        for name, known in (
            ("optimizer", LEARNING_RATES),
            ("precision", DTYPE_POLICIES),
            ("on_nan", ("stop", "rollback")),
        ):
            if getattr(self, name) not in [*known]:  # a list, for what is given may have no hash
                raise ValueError(f"{name}={getattr(self, name)!r}; expected {' or '.join(known)}.")
        intervals = ("log_every", "validate_every", "checkpoint_every", "max_checkpoints_to_keep")
        for name in (*intervals, "patience", "validation_characters"):
            if name in intervals or getattr(self, name) is not None:
                checks.positive_integer(name, getattr(self, name))
        for name in ("warmup_steps", "sample_length"):
            checks.non_negative_integer(name, getattr(self, name))
        if self.on_nan == "rollback" and self.checkpoint_every_seconds is not None:
            raise ValueError("checkpoint_seconds with on_nan='rollback': a clock would choose the step to go back to.")
        for name in ("learning_rate", "adam_lr_ratio", "global_clipnorm", "checkpoint_every_seconds"):
            if getattr(self, name) is not None or name == "global_clipnorm":
                checks.positive_number(name, getattr(self, name))
        checks.number("final_lr_fraction", self.final_lr_fraction, 0, 1)

    def validated_part(self, validation, least=2):
        """The beginning of a validation text, or of its ids of characters, that is scored during training.

        Args:
            validation: all of it.
            least: the fewest characters that make a score: those of a window, and the one behind it.

        Raises:
            ValueError: `validation_characters` is less.
        """
        most = self.validation_characters
        if most is not None and most < least:
            raise ValueError(
                f"--train.validation-characters {most}: expected at least {least:,}, those of a window and the one "
                "behind it, or None for all."
            )
        return validation[:most]

    def peak_learning_rate(self, model) -> float:
        """The highest learning rate, with the default for the optimizer and the model's family filled in."""
        return LEARNING_RATES[self.optimizer][family(model)] if self.learning_rate is None else self.learning_rate

    def resolved(self, model) -> dict:
        """The values that depend on the model's family, as they will be used."""
        ratio = ADAM_RATIOS[family(model)] if self.adam_lr_ratio is None else self.adam_lr_ratio
        return {
            "learning_rate": self.peak_learning_rate(model),
            "adam_lr_ratio": ratio if self.optimizer == "muon" else None,
        }

    def optimizer_options(self, model) -> dict:
        """What the optimizer takes besides the learning rate."""
        options = {"global_clipnorm": self.global_clipnorm}
        if self.optimizer == "sgd":
            options |= {"momentum": 0.9, "nesterov": True}
        if self.optimizer == "adamw":
            options["weight_decay"] = 0.0  # as Muon has it; Keras's default would decay biases and norms too
        if self.optimizer == "muon":
            options["adam_lr_ratio"] = self.resolved(model)["adam_lr_ratio"]
            options["iteration_dtype"] = "bfloat16" if self.precision == "bfloat16" else None
        if self.precision == "float16":
            # Its small gradients would vanish unscaled; the scale is halved where they overflow (watched.py).
            options["loss_scale_factor"] = 1024.0
        return options

    @property
    def dtype_policy(self) -> str:
        """The Keras dtype policy of this precision."""
        return DTYPE_POLICIES[self.precision]

    @property
    def steps_per_execution(self) -> int:
        """Steps that run without coming back to Python: as many, up to 25, as leave nothing due in between."""
        return self.steps_per_execution_from(0)

    def steps_per_execution_from(self, first) -> int:
        """The same from a step on, which may be none at which anything was due."""
        due = math.gcd(self.log_every, self.validate_every, self.checkpoint_every, first)
        return max(n for n in range(1, 26) if due % n == 0)

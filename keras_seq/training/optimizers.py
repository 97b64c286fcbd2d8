"""Name the optimizers and define learning rate schedules with linear warm-up, as functions of the step s.

    WarmupLinearDecay  peak min((s + 1) / warmup, max(final, 1 - (1 - final) (s - warmup) / (total - warmup)))
    InverseSqrtDecay   factor D^-0.5 min((s + 1)^-0.5, (s + 1) warmup^-1.5)

Optimizers have Keras's arguments and defaults, and those of `GradientGuard` (guard.py). What a training sets otherwise,
such as clipping at 1 and SGD's momentum of 0.9, is in `TrainConfig`.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.training.guard import GradientGuard
from keras_seq.training.muon import Muon, NorMuon
from keras_seq.training.tensor_lists import ON_TORCH


def _class_of(optimizer_class):
    """Return the class that Keras makes instances of: on PyTorch a subclass that updates all weights at once."""
    return type(optimizer_class.__new__(optimizer_class))


@keras.saving.register_keras_serializable(package="keras_seq")
class SGD(GradientGuard, _class_of(keras.optimizers.SGD)):
    """Update weights by gradient descent: `W <- W - lr g`.

    With `momentum=0.9, nesterov=True` (Sutskever et al., 2013), as in `TrainConfig`:
    `m <- 0.9 m - lr g; W <- W + 0.9 m - lr g`.

    The arguments are Keras's, `global_clipnorm`, `loss_scale_factor` and `gradient_accumulation_steps`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Adagrad(GradientGuard, _class_of(keras.optimizers.Adagrad)):
    """Update weights by Adagrad (Duchi et al., 2011): `v <- v + g^2; W <- W - lr g / sqrt(v)`.

    The arguments are Keras's, `global_clipnorm`, `loss_scale_factor` and `gradient_accumulation_steps`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class RMSprop(GradientGuard, _class_of(keras.optimizers.RMSprop)):
    """Update weights by RMSprop (Tieleman & Hinton, 2012): `v <- 0.9 v + 0.1 g^2; W <- W - lr g / sqrt(v)`.

    The arguments are Keras's, `global_clipnorm`, `loss_scale_factor` and `gradient_accumulation_steps`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Adam(GradientGuard, _class_of(keras.optimizers.Adam)):
    """Update weights by Adam (Kingma & Ba, 2015, arXiv:1412.6980).

    `m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; W <- W - lr m_hat / (sqrt(v_hat) + eps)`, m_hat and v_hat
    bias-corrected.

    The arguments are Keras's, `global_clipnorm`, `loss_scale_factor` and `gradient_accumulation_steps`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class AdamW(GradientGuard, _class_of(keras.optimizers.AdamW)):
    """Update weights by AdamW (Loshchilov & Hutter, 2019, arXiv:1711.05101): Adam after `W <- W - lr weight_decay W`.

    The arguments are Keras's, `global_clipnorm`, `loss_scale_factor` and `gradient_accumulation_steps`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Lion(GradientGuard, _class_of(keras.optimizers.Lion)):
    """Update weights by Lion (Chen et al., 2023, arXiv:2302.06675).

    `W <- W - lr sign(0.9 m + 0.1 g); m <- 0.99 m + 0.01 g`. Each update has size `learning_rate`; use 1/3 to 1/10 of
    Adam's learning rate.

    The arguments are Keras's, `global_clipnorm`, `loss_scale_factor` and `gradient_accumulation_steps`.
    """


OPTIMIZERS = {
    "sgd": SGD,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adam": Adam,
    "adamw": AdamW,
    "lion": Lion,
    "muon": Muon,
    "normuon": NorMuon,
}
"""Optimizer classes by their names in `TrainConfig.optimizer`."""


@keras.saving.register_keras_serializable(package="keras_seq")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Raise the learning rate linearly to its peak, then decay it linearly.

    Args:
        peak_learning_rate: Peak, reached after the warm-up.
        total_steps: Step at which the decay ends.
        warmup_steps: Steps of the warm-up; 0 starts at the peak.
        final_lr_fraction: Learning rate at `total_steps` as a fraction of the peak, from 0 to 1.

    Raises:
        ValueError: If a number is out of its range.
    """

    def __init__(
        self, peak_learning_rate: float, total_steps: int, warmup_steps: int = 0, final_lr_fraction: float = 0.0
    ):
        self.peak_learning_rate = checks.positive_number("peak_learning_rate", peak_learning_rate)
        self.total_steps = checks.non_negative_integer("total_steps", total_steps)
        self.warmup_steps = checks.non_negative_integer("warmup_steps", warmup_steps)
        self.final_lr_fraction = checks.number("final_lr_fraction", final_lr_fraction, min_value=0, max_value=1)

    def __call__(self, step):
        """Return the learning rate of a step, float32; that of a Python integer, and on torch, is a Python number."""
        if ON_TORCH and isinstance(step, keras.Variable):  # whose operations would take longer than a small update
            step = int(step.value)
        smaller, larger = (min, max) if isinstance(step, int) else (ops.minimum, ops.maximum)
        step = step if isinstance(step, int) else ops.cast(step, "float32")
        rise = (step + 1.0) / max(1, self.warmup_steps)
        progress = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        fall = larger(self.final_lr_fraction, 1.0 - (1.0 - self.final_lr_fraction) * progress)
        return self.peak_learning_rate * smaller(rise, fall)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        names = ("peak_learning_rate", "total_steps", "warmup_steps", "final_lr_fraction")
        return {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable(package="keras_seq")
class InverseSqrtDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Raise the learning rate linearly, then decay it with the inverse square root of the step.

    This is the Transformer's schedule (Vaswani et al., 2017, arXiv:1706.03762, section 5.3). Its peak, `factor /
    sqrt(embedding_dim * warmup_steps)`, is at the last step of the warm-up. It has no planned end.

    Args:
        embedding_dim: D, the width of the model.
        warmup_steps: Steps of the warm-up, at least 1.
        factor: Factor of all learning rates.

    Raises:
        ValueError: If a number is out of its range.
    """

    def __init__(self, embedding_dim: int, warmup_steps: int = 4000, factor: float = 1.0):
        self.embedding_dim = checks.positive_integer("embedding_dim", embedding_dim)
        self.warmup_steps = checks.positive_integer("warmup_steps", warmup_steps)
        self.factor = checks.positive_number("factor", factor)

    def __call__(self, step):
        """Return the learning rate of a step, float32."""
        step = ops.cast(step, "float32") + 1.0  # an optimizer counts from 0
        return self.factor * self.embedding_dim**-0.5 * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {"embedding_dim": self.embedding_dim, "warmup_steps": self.warmup_steps, "factor": self.factor}

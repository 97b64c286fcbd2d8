"""The learning rate as a function of the step s: up in a straight line, then down, straight or as 1 / sqrt(s).

WarmupDecay        peak min(1, (s + 1) / warmup) (1 - (1 - final) clip((s - warmup) / (total - warmup), 0, 1))
InverseSquareRoot  factor D^-0.5 min((s + 1)^-0.5, (s + 1) warmup^-1.5)
"""

import keras
from keras import ops

from keras_seq import checks


@keras.saving.register_keras_serializable(package="keras_seq")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak`, linear decay to `final_fraction * peak` at step `total_steps`.

    Args:
        peak: the highest learning rate.
        total_steps: steps of the whole training.
        warmup_steps: steps of the rise; 0 starts at the peak.
        final_fraction: what is left at the end, from 0 to 1.

    Raises:
        ValueError: a number out of its range.
    """

    def __init__(self, peak, total_steps, warmup_steps=0, final_lr_fraction=0.0):
        self.peak = checks.positive_number("peak", peak)
        self.total_steps = checks.non_negative_integer("total_steps", total_steps)
        self.warmup_steps = checks.non_negative_integer("warmup_steps", warmup_steps)
        self.final_lr_fraction = checks.number("final_lr_fraction", final_lr_fraction, min_value=0, max_value=1)

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rise = ops.minimum(1.0, (step + 1.0) / max(1, self.warmup_steps))
        done = ops.clip((step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps), 0.0, 1.0)
        return self.peak * rise * (1.0 - (1.0 - self.final_lr_fraction) * done)

    def get_config(self):
        return {
            "peak": self.peak,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "final_lr_fraction": self.final_lr_fraction,
        }


@keras.saving.register_keras_serializable(package="keras_seq")
class InverseSqrtDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the root of the step: the Transformer's own (Vaswani et al., 2017, section 5.3).

    Its peak, `factor / sqrt(embedding_dim * warmup_steps)`, is at the last step of the warm-up. The training has no
    planned end.

    Args:
        embedding_dim: D, the width of the model.
        warmup_steps: steps of the rise, at least 1.
        factor: of the whole.
    """

    def __init__(self, embedding_dim, warmup_steps=4000, factor=1.0):
        self.embedding_dim = checks.positive_integer("embedding_dim", embedding_dim)
        self.warmup_steps = checks.positive_integer("warmup_steps", warmup_steps)
        self.factor = checks.positive_number("factor", factor)

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0  # an optimizer counts from 0
        return self.factor * self.embedding_dim**-0.5 * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)

    def get_config(self):
        return {"embedding_dim": self.embedding_dim, "warmup_steps": self.warmup_steps, "factor": self.factor}

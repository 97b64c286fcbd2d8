"""The learning rate as a function of the step: up in a straight line, then down in a straight line.

rate(s) = peak min(1, (s + 1) / warmup) (1 - (1 - final) clip((s - warmup) / (total - warmup), 0, 1))
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_seq")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak`, linear decay to `final_fraction * peak` at step `total_steps`.

    Args:
        peak: the highest learning rate.
        total_steps: steps of the whole training.
        warmup_steps: steps of the rise; 0 starts at the peak.
        final_fraction: what is left at the end, from 0 to 1.
    """

    def __init__(self, peak, total_steps, warmup_steps=0, final_fraction=0.0):
        self.peak = peak
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.final_fraction = final_fraction

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rise = ops.minimum(1.0, (step + 1.0) / max(1, self.warmup_steps))
        done = ops.clip((step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps), 0.0, 1.0)
        return self.peak * rise * (1.0 - (1.0 - self.final_fraction) * done)

    def get_config(self):
        return {
            "peak": self.peak,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "final_fraction": self.final_fraction,
        }

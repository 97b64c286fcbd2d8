"""How a model is compiled for training: loss, optimizer and learning rate, and whether XLA compiles the whole step."""

import keras

from keras_seq.kernels.devices import on_cpu
from keras_seq.layers.introspection import has_time_loop
from keras_seq.training.config import TrainConfig
from keras_seq.training.optimizers import OPTIMIZERS
from keras_seq.training.schedules import WarmupLinearDecay

# Weights times tokens of a step up to which a CPU is faster with the whole step compiled. Beyond, XLA's matmuls, slower
# than TensorFlow's, in bfloat16 by far, cost more than fusing small operations gives (JOURNAL.md).
MAX_JIT_COST = {"float32": 10**10, "bfloat16": 10**9, "float16": 10**9}


@keras.saving.register_keras_serializable(package="keras_seq")
class _CrossEntropy(keras.losses.SparseCategoricalCrossentropy):
    """Keras's, also where a text has only one character: Keras's own would take logits `[B, T, 1]` for `[B, T]`."""

    def call(self, y_true, y_pred):
        return keras.ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def compile_model(training_model, train: TrainConfig, total_steps, loss=None, schedule=None, tokens_per_step=1000):
    """Compiles a model with the optimizer of `train`.

    Args:
        trainee: the model; its layers say what kind it is, and so which learning rate is the default.
        train: optimizer, learning rate and the like.
        total_steps: where the schedule ends.
        loss: a Keras loss; by default the cross-entropy of logits.
        schedule: from a step to a learning rate; by default the warm-up and decay of `train`.
        tokens_per_step: positions of a batch, roughly: which way to compile is the fastest depends on it.
    """
    peak = train.peak_learning_rate(training_model)
    training_model.compile(
        optimizer=OPTIMIZERS[train.optimizer](
            schedule or WarmupLinearDecay(peak, total_steps, train.warmup_steps, train.final_lr_fraction),
            **train.optimizer_options(training_model),
        ),
        auto_scale_loss=False,
        loss=loss or _CrossEntropy(from_logits=True),
        steps_per_execution=train.steps_per_execution,
        jit_compile=_should_jit_compile(training_model, train.precision, tokens_per_step),
    )
    training_model.optimizer.build(training_model.trainable_variables)


def _should_jit_compile(training_model, precision, tokens_per_step):
    """Whether XLA compiles a whole step, which fuses many small operations; else the kernels have it compile parts."""
    if has_time_loop(training_model):  # over positions, around which it costs more than it gives
        return False
    return not on_cpu() or training_model.count_params() * tokens_per_step <= MAX_JIT_COST[precision]

"""Optimizers by name, learning rate schedules as functions of the step s, and how a model is compiled for training.

    WarmupLinearDecay  peak min((s + 1) / warmup, max(final, 1 - (1 - final) (s - warmup) / (total - warmup)))
    InverseSqrtDecay   factor D^-0.5 min((s + 1)^-0.5, (s + 1) warmup^-1.5)

Optimizers have Keras's arguments and defaults, and those of `GradientGuard` (guard.py). What a training sets otherwise,
such as clipping at 1 and SGD's momentum of 0.9, is in `TrainConfig`.

With rematerialization each block is computed twice, and only its input is stored for the gradient (Chen et al., 2016,
arXiv:1604.06174). Keras's `RematScope` would draw other dropout masks the second time, as the first call advances the
seeds. So a block is a function of its input, weights and seeds here, as `keras.remat` expects.
"""

import functools

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers import PreNormResidual, TransformerBlock
from keras_seq.layers.introspection import has_time_loop, iter_layers
from keras_seq.ops.dispatch import cpu_is_faster_in_bfloat16, on_cpu
from keras_seq.ops.position_wise import cross_entropy
from keras_seq.ops.tensor_checks import dtype_of
from keras_seq.training.config import MUONS, OptionError, TrainConfig
from keras_seq.training.guard import GradientGuard, require_weights
from keras_seq.training.muon import NUMBERS, Muon, NorMuon
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

    `m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; W <- W - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)` at
    step t, as Keras's.

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


OPTIMIZERS = {kind.__name__.lower(): kind for kind in (SGD, Adagrad, RMSprop, Adam, AdamW, Lion, Muon, NorMuon)}
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


# Parameters times tokens of a step up to which XLA is faster on a CPU for the whole step. Beyond, its matmuls, slower
# than TensorFlow's, in bfloat16 by far, cost more than the fusion of small operations gains.
MAX_JIT_COST = {"float32": 10**10, "bfloat16": 10**9, "float16": 10**9}


@keras.saving.register_keras_serializable(package="keras_seq")
class _CrossEntropy(keras.losses.SparseCategoricalCrossentropy):
    """Compute Keras's loss for a vocabulary of one token too, where Keras would squeeze logits `[B, T, 1]`."""

    def call(self, y_true, y_pred):
        return cross_entropy(y_true, y_pred)


def compile_model(
    training_model: keras.Model,
    train: TrainConfig,
    total_steps: int,
    loss: keras.losses.Loss | None = None,
    schedule: keras.optimizers.schedules.LearningRateSchedule | None = None,
    tokens_per_step: int = 1000,
):
    """Compile a model with the optimizer of `train`.

    Args:
        training_model: The model; its layers decide the default learning rate.
        train: Training config.
        total_steps: Step at which the schedule ends.
        loss: Keras loss; by default the cross-entropy of logits.
        schedule: Keras learning rate schedule; by default the warm-up and decay of `train`.
        tokens_per_step: Approximate number of tokens of a batch; decides whether XLA compiles the step.

    Raises:
        ValueError: The model has no trainable weight.
        OptionError: It has no residual blocks although `train.rematerialization` is set.
    """
    require_weights(training_model.trainable_variables)
    if train.rematerialization:
        rematerialize_blocks(training_model)
    peak, options = train.peak_learning_rate(training_model), train.optimizer_options(training_model, total_steps)
    jit_compile = _should_jit_compile(training_model, train.precision, tokens_per_step)
    if train.optimizer in MUONS:
        options["iteration_dtype"] = _muon_dtype(jit_compile, train.precision)
    optimizer = OPTIMIZERS[train.optimizer](
        schedule or WarmupLinearDecay(peak, total_steps, train.warmup_steps, train.final_lr_fraction), **options
    )
    optimizer.train_config = train
    if train.weight_decay is not None:
        variables = training_model.trainable_variables
        optimizer.exclude_from_weight_decay([v for v in variables if len(v.shape) < 2 or v.name.endswith(NUMBERS)])
    training_model.compile(
        optimizer=optimizer,
        auto_scale_loss=False,
        loss=loss or _CrossEntropy(from_logits=True),
        steps_per_execution=train.steps_per_execution,
        jit_compile=jit_compile,
    )
    training_model.optimizer.build(training_model.trainable_variables)


def _should_jit_compile(training_model, precision, tokens_per_step):
    """Return whether XLA compiles the whole step; TensorFlow's optimized kernels otherwise have it compile parts."""
    if keras.backend.backend() != "tensorflow":  # PyTorch's compiler takes minutes to save little of these steps
        return keras.backend.backend() == "jax"
    if has_time_loop(training_model):  # XLA around a loop over time steps is slower
        return False
    return not on_cpu() or training_model.count_params() * tokens_per_step <= MAX_JIT_COST[precision]


def _muon_dtype(jit_compile, precision):
    """Return the dtype in which Muon's matrix products are fastest, bfloat16 on some CPUs, but not in XLA."""
    bfloat16 = cpu_is_faster_in_bfloat16() and not jit_compile if on_cpu() else precision == "bfloat16"
    return "bfloat16" if bfloat16 else None


def rematerialize_blocks(model: keras.Model) -> None:
    """Have each `TransformerBlock` and `PreNormResidual` of a model computed again for the gradient."""
    blocks = [layer for layer in iter_layers(model) if isinstance(layer, TransformerBlock | PreNormResidual)]
    if not blocks:
        raise OptionError(f"rematerialization=True, but {model.name} has no TransformerBlock and no PreNormResidual.")
    for block in blocks:
        if "call" not in vars(block):  # else it is done
            block.call = _rematerialized(block, block.call)


def _rematerialized(block, call):
    """Return the `call` of a block, computed again for the gradient in training."""

    @functools.wraps(call)
    def wrapper(*args, training=None, **kwargs):
        if not training:
            return call(*args, training=training, **kwargs)
        leaves = keras.tree.flatten((args, kwargs))
        inputs = [n for n, x in enumerate(leaves) if keras.ops.is_tensor(x) and "float" in dtype_of(x)]
        # copies: the variables change before the gradient is computed
        state = [(variable, keras.ops.copy(variable)) for variable in block.non_trainable_variables]

        def function(*tensors):
            own_leaves = {**dict(enumerate(leaves)), **dict(zip(inputs, tensors, strict=False))}
            own_args, own_kwargs = keras.tree.pack_sequence_as((args, kwargs), [*own_leaves.values()])
            weights = zip(block.trainable_variables, tensors[len(inputs) :], strict=True)
            with keras.StatelessScope([*weights, *state], collect_losses=True) as scope:
                outputs = call(*own_args, training=training, **own_kwargs)
            return outputs, [scope.get_current_value(variable) for variable, _ in state], scope.losses

        # tensors, since eager TensorFlow counts the gradient of a variable twice
        weights = [keras.ops.copy(variable) for variable in block.trainable_variables]
        outputs, new_state, losses = keras.remat(function)(*(leaves[n] for n in inputs), *weights)
        block.add_loss(losses)  # those of activity regularizers
        for (variable, _), value in zip(state, new_state, strict=True):
            variable.assign(value)
        return outputs

    return wrapper

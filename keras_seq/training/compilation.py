"""Compile a model for training: loss, optimizer, learning rate schedule, and whether XLA compiles the whole step.

With rematerialization each block is computed twice, and only its input is stored for the gradient (Chen et al., 2016,
arXiv:1604.06174). Keras's `RematScope` would draw other dropout masks the second time, as the first call advances the
seeds. So a block is a function of its input, weights and seeds here, as `keras.remat` expects.
"""

import functools

import keras

from keras_seq.layers import PreNormResidual, TransformerBlock
from keras_seq.layers.introspection import has_time_loop, iter_layers
from keras_seq.ops.dispatch import cpu_is_faster_in_bfloat16, on_cpu
from keras_seq.ops.position_wise import cross_entropy
from keras_seq.ops.tensor_checks import dtype_of
from keras_seq.training.config import MUONS, OptionError, TrainConfig
from keras_seq.training.guard import require_weights
from keras_seq.training.optimizers import OPTIMIZERS, WarmupLinearDecay

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
        optimizer.exclude_from_weight_decay([v for v in training_model.trainable_variables if len(v.shape) < 2])
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

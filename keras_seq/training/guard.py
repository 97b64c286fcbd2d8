"""Clip gradients by their global norm, skip steps that are not finite, and scale the loss for float16.

    g <- mean of the gradients of the last gradient_accumulation_steps batches
    norm = sqrt(sum over all gradients of g^2)         in float32
    g <- g min(1, global_clipnorm / norm)

A step whose loss or gradient is NaN or infinite changes no weight. Later steps change none either. All are counted.
For float16 the loss is multiplied by a scale before gradients are computed. If they overflow, the step changes no
weight and the scale is halved; after 2,000 steps without overflow it is doubled. Keras's `LossScaleOptimizer` does the
same, but does not count the step, and data and seeds depend on its number here.
"""

import functools
import math
import types
from collections.abc import Callable, Sequence

import keras
from keras import ops

from keras_seq import checks
from keras_seq.ops import replicas
from keras_seq.ops.compiled import xla_compiled
from keras_seq.training.tensor_lists import ON_TORCH, scaled, sums_of_squares

GROWTH_STEPS = 2000
MAX_LOSS_SCALE = 2.0**24
MIN_FUSED_PARAMS = 2**17  # for fewer parameters, starting one XLA program for all costs more than it saves
LOSS_INDEX = -1  # `first_nonfinite_index` where every gradient is NaN or that of the smallest weight alone


def assign_if(condition, true_fn: Callable, false_fn: Callable, variables: Sequence[keras.Variable]) -> None:
    """Call one of two functions for what it assigns, as a condition on the device demands.

    JAX's conditions return values only: each function runs on a copy of `variables`, all that either of them assigns.
    torch has Python's own conditions; Keras's operation takes half a millisecond for them.
    """
    if ON_TORCH:
        (true_fn if condition else false_fn)()
        return
    if keras.backend.backend() != "jax":
        ops.cond(condition, true_fn, false_fn)
        return
    before = [(variable, variable.value) for variable in variables]

    def values_after(function):
        with keras.StatelessScope(before) as scope:
            function()
        return [scope.get_current_value(variable) for variable in variables]

    after = ops.cond(condition, lambda: values_after(true_fn), lambda: values_after(false_fn))
    for variable, value in zip(variables, after, strict=True):
        variable.assign(value)


def _dense(gradient, shape):
    """Return a dense gradient of known shape; TensorFlow gives an embedding's as one row for each id of the batch."""
    if hasattr(gradient, "dense_shape"):
        gradient = ops.zeros(shape, gradient.dtype) + gradient
    return gradient if gradient is None or gradient.shape == shape else ops.reshape(gradient, shape)


def require_weights(variables):
    """Raise a ValueError if there is nothing to train."""
    if not variables:
        raise ValueError("The model has no trainable weight; expected one: build it, or set trainable=True of a layer.")


def _smallest(variables):
    """Return the index of the smallest variable."""
    sizes = [math.prod(v.shape) for v in variables]
    return sizes.index(min(sizes))


class GradientGuard:
    """Add clipping, accumulation, a non-finite guard and loss scaling to an optimizer; list it before the Keras class.

    The variable `lr_factor`, 1 unless assigned, multiplies the learning rate. `gradient_norm` is the norm of the last
    step before clipping. `first_nonfinite_step` is the first step whose loss or gradient was not finite (-1: none);
    `describe_nonfinite()` says which of them it was. `step` counts batches and sets the learning rate; `iterations`
    counts updates, as in Keras.
    """

    def __init__(
        self,
        *args,
        global_clipnorm: float | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        **kwargs,
    ):
        learning_rate = args[0] if args else kwargs.get("learning_rate", 0.0)
        if not callable(learning_rate):
            checks.number("learning_rate", learning_rate, 0)
        if global_clipnorm is not None:
            checks.positive_number("global_clipnorm", global_clipnorm)
        if gradient_accumulation_steps is not None:
            checks.positive_integer("gradient_accumulation_steps", gradient_accumulation_steps)
        super().__init__(*args, loss_scale_factor=loss_scale_factor, **kwargs)
        # not self.global_clipnorm: Keras's `apply` would clip once more, and accumulate once more
        self._max_norm, self.accumulation_steps = global_clipnorm, gradient_accumulation_steps
        self.initial_scale = loss_scale_factor
        self.train_config = None  # of `compile_model`

    def build(self, variables):
        """Create the optimizer's variables and the guard's counters."""
        if self.built:
            return
        # in a namespace, as Keras would count those in a list of the optimizer among the optimizer's own
        self._weights = types.SimpleNamespace(all=[*variables], index={id(v): n for n, v in enumerate(variables)})
        super().build(variables)
        self.gradient_norm = self._scalar("gradient_norm", 0.0)
        self.lr_factor = self._scalar("lr_factor", 1.0)
        self.first_nonfinite_step = self._scalar("first_nonfinite_step", -1, "int32")
        self.first_nonfinite_index = self._scalar("first_nonfinite_index", LOSS_INDEX, "int32")
        if self.loss_scale_factor is not None:
            self.loss_scale_factor = self._scalar("loss_scale", self.loss_scale_factor)
            self.steps_since_overflow = self._scalar("steps_since_overflow", 0, "int32")
        if self.accumulation_steps is not None:
            self._gradient_sums = self.add_optimizer_variables(variables, "gradient_accumulator")

    def add_variable_from_reference(self, reference_variable, name=None, initializer="zeros"):
        """Add a variable like a weight; the average begins with the weight, so that the first step may be skipped."""
        if name == "average":

            def initializer(shape, dtype):
                return ops.copy(reference_variable)  # JAX gives the memory of each away, so they share none

        return super().add_variable_from_reference(reference_variable, name, initializer)

    def finalize_variable_values(self, var_list):
        """Replace the weights by a copy of their average, if there is one."""
        super().finalize_variable_values(var_list)
        for variable in var_list if self.use_ema else ():
            variable.assign(ops.copy(variable.value))  # for JAX, as above

    def _scalar(self, name, value, dtype="float32"):
        return self.add_variable((), initializer=keras.initializers.Constant(value), dtype=dtype, name=name)

    @property
    def trained(self) -> list:
        """Return the weights that the optimizer was built with."""
        return self._weights.all

    def index_of(self, variable) -> int:
        """Return the index of a weight in `trained`."""
        return self._weights.index[id(variable)]

    @property
    def step(self):
        """Return the number of batches so far."""
        return super().iterations  # Keras does not know of the accumulation

    @property
    def iterations(self):
        """Return the number of updates so far, skipped ones included."""
        steps = self.accumulation_steps
        return self.step if steps is None else ops.floor_divide(self.step, steps)

    @property
    def learning_rate(self):
        """Return the learning rate of this step, times `lr_factor`."""
        rate = super().learning_rate
        return rate * self.lr_factor.value if hasattr(self, "lr_factor") else rate

    @learning_rate.setter
    def learning_rate(self, rate):
        keras.optimizers.Optimizer.learning_rate.fset(self, rate)

    def scale_loss(self, loss):
        """Return the scaled loss. If it is not finite, a gradient will be NaN: that of the smallest weight alone.

        So no other gradient waits for the loss. On JAX the weights are not known yet, and all gradients will be NaN.
        """
        if isinstance(loss, int | float):
            return loss if self.loss_scale_factor is None else loss * self.loss_scale_factor
        if not self.built:
            return super().scale_loss(loss)
        weights = [v for v in self.trained if v.trainable]  # one may have been frozen
        require_weights(weights)
        weight = loss if keras.backend.backend() == "jax" else weights[_smallest(weights)]
        zero_or_nan = ops.where(ops.isfinite(loss), 0.0, float("nan"))
        return super().scale_loss(loss + ops.cast(zero_or_nan, loss.dtype) * ops.cast(ops.sum(weight), loss.dtype))

    def apply(self, grads, trainable_variables=None):
        """Clip and apply the gradients, add them to those of the next batches, or skip the step."""
        if not self.built:
            self.build(trainable_variables)
        variables = self.trained if trainable_variables is None else list(trainable_variables)
        require_weights(variables)
        grads = [_dense(g, v.shape) for g, v in zip(grads, variables, strict=True)]
        if replicas.in_replica():
            replicas.update(lambda sums: self._accumulate(sums, variables), grads, variables)
        else:
            self._accumulate(grads, variables)

    def _accumulate(self, grads, variables):
        steps = self.accumulation_steps
        if steps is None:
            self._update(grads, variables)
            return
        sums = [self._gradient_sums[self.index_of(v)] for v in variables]
        grads = [None if g is None else total + g for g, total in zip(grads, sums, strict=True)]

        def update():
            self._update([None if g is None else g / steps for g in grads], variables)
            for total in sums:
                total.assign(ops.zeros(total.shape, total.dtype))

        def accumulate():
            for gradient, total in zip(grads, sums, strict=True):
                if gradient is not None:
                    total.assign(gradient)
            self.step.assign_add(1)

        assign_if((self.step + 1) % steps == 0, update, accumulate, [*self.trained, *self.variables])

    def _update(self, grads, variables):
        self.compiled(lambda grads: self._apply(grads, sums_of_squares(grads), variables), variables)(grads)

    @staticmethod
    def compiled(function, variables):
        """Return a function of the gradients of these variables, compiled by XLA if they are large."""
        size = sum(math.prod(v.shape) for v in variables)
        return xla_compiled(function) if size >= MIN_FUSED_PARAMS else function

    def _apply(self, grads, squares, variables):
        norm, scale = self._norm_and_clip_scale(squares)
        self.gradient_norm.assign(norm)
        finite = norm < float("inf")  # False for NaN, too
        if self._max_norm is not None:
            grads = scaled(grads, scale)
        assign_if(
            finite & (self.first_nonfinite_step.value < 0),
            functools.partial(super().apply, grads, variables),
            functools.partial(self._skip, squares, variables, num_grads=sum(g is not None for g in grads)),
            [*self.trained, *self.variables],
        )
        if self.loss_scale_factor is not None:
            self._update_loss_scale(finite)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        """Update all variables; in a replica, the copies of this device."""
        if not replicas.in_strategy():
            super()._backend_update_step(grads, trainable_variables, learning_rate)
            return
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            self.update_step(gradient, variable.value, learning_rate)

    def _apply_weight_decay(self, variables):
        """Decay the weights but for those excluded; in a replica, the copies of this device."""
        for variable in filter(self._use_weight_decay, variables) if self.weight_decay else ():
            rate, decay = (ops.cast(x, variable.dtype) for x in (self.learning_rate, self.weight_decay))
            variable.assign_sub(variable * decay * rate)

    def _norm_and_clip_scale(self, squares):
        """Return the norm of the unscaled loss's gradients, and the factor that clips them."""
        if ON_TORCH:  # torch waits for it anyway; Python's numbers take a tenth of the time
            norm, smaller = math.sqrt(squares.sum()), min
        else:
            norm, smaller = ops.sqrt(ops.sum(squares)), ops.minimum
        if self.loss_scale_factor is not None:
            norm = norm / self.loss_scale_factor
        return norm, 1.0 if self._max_norm is None else smaller(1.0, self._max_norm / (norm + 1e-6))

    def clipped(self, grads, squares, dtype):
        """Return the gradients of the unscaled loss in a dtype, clipped, by `clipnorm` or `clipvalue` too."""
        _, scale = self._norm_and_clip_scale(squares)
        scale = scale if self.loss_scale_factor is None else scale / self.loss_scale_factor
        grads = scaled([ops.cast(g, dtype) for g in grads], scale)
        if self.clipnorm:
            return [g * self.clipnorm / ops.maximum(ops.norm(g), self.clipnorm) for g in grads]
        return [ops.clip(g, -self.clipvalue, self.clipvalue) for g in grads] if self.clipvalue else grads

    def _skip(self, squares, variables, num_grads):
        """Count the step; record the first that no smaller loss scale can help, and its first bad gradient."""
        first = self.first_nonfinite_step < 0
        if self.loss_scale_factor is not None:
            first = ops.logical_and(first, self.loss_scale_factor <= 1.0)
        worst = ops.argmax(ops.where(ops.isfinite(squares), squares, ops.full_like(squares, float("inf"))))
        is_nan = ops.cast(ops.isnan(squares), "int32")
        count = ops.sum(is_nan)
        of_the_loss = ops.logical_or(count == num_grads, is_nan[_smallest(variables)] == ops.maximum(count, 1))
        # taken, since XLA would compile `indices[worst]` anew in every step
        indices = ops.convert_to_tensor([self.index_of(v) for v in variables], "int32")
        index = ops.where(of_the_loss, LOSS_INDEX, ops.take(indices, worst))
        self.first_nonfinite_index.assign(ops.where(first, index, self.first_nonfinite_index.value))
        step = ops.where(first, ops.cast(self.step, "int32"), self.first_nonfinite_step.value)
        self.first_nonfinite_step.assign(step)
        self.step.assign_add(1)

    def _update_loss_scale(self, finite):
        steps = ops.where(finite, self.steps_since_overflow + 1, 0)
        grows = steps >= GROWTH_STEPS
        scale = ops.convert_to_tensor(self.loss_scale_factor)
        larger = ops.where(grows, ops.minimum(scale * 2.0, MAX_LOSS_SCALE), scale)
        self.loss_scale_factor.assign(ops.where(finite, larger, ops.maximum(scale * 0.5, 1.0)))
        self.steps_since_overflow.assign(ops.where(grows, 0, steps))

    def describe_nonfinite(self) -> str:
        """Return a description of what was not finite first: the loss, or the gradient of a variable."""
        index = int(self.first_nonfinite_index)
        if index == LOSS_INDEX:
            return "The loss"
        return f"The gradient (of {self.trained[index].path})"

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {
            **super().get_config(),
            "global_clipnorm": self._max_norm,
            "loss_scale_factor": self.initial_scale,
            "gradient_accumulation_steps": self.accumulation_steps,
        }

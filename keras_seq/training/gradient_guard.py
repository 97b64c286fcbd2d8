"""What all optimizers share: they clip, they watch for what is not a number, and they survive overflow in float16.

    norm = sqrt(sum over all gradients of g^2)         in float32
    g <- g min(1, clip / norm)

A step whose loss or gradient is not a number changes no weight, nor does any step after it; every step is counted.
With a `loss_scale_factor` the loss is multiplied by a scale before the gradients are taken. Where they overflow, the
step changes nothing either, but the scale is halved and the training goes on; after 2,000 steps without overflow the
scale is doubled. (Keras's `LossScaleOptimizer` does the same but does not count the step, which is our clock.)
"""

import functools
import math

import keras
from keras import ops

from keras_seq import checks, kernels

GROWTH_STEPS = 2000
MAX_LOSS_SCALE = 2.0**24
MIN_FUSED_PARAMS = 2**17  # weights; fewer are moved faster than one program for all of them is started
LOSS = -1  # `first_bad_tensor`, where it was the loss


def _dense(gradient):
    """TensorFlow's gradient of an embedding has a row for every id of a batch; here the rows of one id are added."""
    return ops.zeros(gradient.shape, gradient.dtype) + gradient if hasattr(gradient, "dense_shape") else gradient


def _square(gradient):
    return ops.sum(ops.square(ops.cast(gradient, "float32")))


class GradientGuard:
    """Goes before an optimizer of Keras.

    Args:
        *args, **kwargs: those of the Keras optimizer, with its defaults. The learning rate, a number or a schedule, is
            multiplied by `rate_factor`, which is 1 until somebody assigns another.
        clip_norm: largest L2 norm of all gradients together; None, the default, clips nothing.
        loss_scale_factor: initial scale of the loss, for float16; None for none.

    `gradient_norm` is the norm of the last step, `first_bad_step` the first step whose loss or gradient was not a
    number (-1: none), and `first_bad_tensor()` says which it was.
    """

    def __init__(self, *args, global_clipnorm=None, loss_scale_factor=None, **kwargs):
        learning_rate = args[0] if args else kwargs.get("learning_rate", 0.0)
        if not callable(learning_rate):
            checks.number("learning_rate", learning_rate, 0)
        if global_clipnorm is not None:
            checks.positive_number("global_clipnorm", global_clipnorm)
        super().__init__(*args, loss_scale_factor=loss_scale_factor, **kwargs)
        self.global_clipnorm = global_clipnorm
        self.initial_scale = loss_scale_factor

    def build(self, variables):
        super().build(variables)
        if hasattr(self, "gradient_norm"):
            return
        self.gradient_norm = self._number("gradient_norm", 0.0)
        self.loss = self._number("loss", 0.0)
        self.lr_factor = self._number("lr_factor", 1.0)
        self.first_nonfinite_step = self._number("first_bad_step", -1, "int32")
        self.first_nonfinite_index = self._number("bad_place", LOSS, "int32")
        if self.loss_scale_factor is not None:
            self.loss_scale_factor = self._number("loss_scale", self.loss_scale_factor)
            self.steps_since_overflow = self._number("clean_steps", 0, "int32")

    def _number(self, name, value, dtype="float32"):
        return self.add_variable((), initializer=keras.initializers.Constant(value), dtype=dtype, name=name)

    def scale_loss(self, loss):
        """What Keras takes the gradients of; the loss itself is kept."""
        if self.built:
            self.loss.assign(ops.cast(loss, "float32"))
        return super().scale_loss(loss)

    def apply(self, grads, trainable_variables=None):
        """Measures, clips and applies the gradients."""
        if not self.built:
            self.build(trainable_variables)
        update = functools.partial(self._apply, trainable_variables)
        many = sum(math.prod(v.shape) for v in trainable_variables or self._trainable_variables) >= MIN_FUSED_PARAMS
        (kernels.xla_compiled(update) if many else update)([_dense(g) for g in grads])

    def _apply(self, trainable_variables, grads):
        squares = [ops.zeros(()) if g is None else _square(g) for g in grads]
        norm = ops.sqrt(sum(squares)) / (1.0 if self.loss_scale_factor is None else self.loss_scale_factor)
        self.gradient_norm.assign(norm)
        fits, has_loss = ops.isfinite(norm), ops.isfinite(self.loss)
        overflow = self._overflow(fits, has_loss)
        good = ops.logical_and(self.first_nonfinite_step < 0, ops.logical_and(fits, has_loss))
        self._note(ops.stack(squares), has_loss, ops.logical_or(good, overflow))
        if self.global_clipnorm is not None:
            scale = ops.minimum(1.0, self.global_clipnorm / (norm + 1e-6))
            grads = [None if g is None else g * ops.cast(scale, g.dtype) for g in grads]
        ops.cond(good, functools.partial(super().apply, grads, trainable_variables), self._only_count)
        if self.loss_scale_factor is not None:
            self._rescale(overflow, fits)

    def _only_count(self):
        self._iterations.assign_add(1)

    def _overflow(self, fits, has_loss):
        """Whether a smaller scale of the loss may mend it: the loss is a number, its gradients are not."""
        if self.loss_scale_factor is None:
            return False
        return ops.logical_and(ops.logical_and(has_loss, ops.logical_not(fits)), self.loss_scale_factor > 1.0)

    def _note(self, squares, has_loss, fine):
        """Keeps the first step that is not fine, and what went bad in it."""
        first = ops.logical_and(self.first_nonfinite_step < 0, ops.logical_not(fine))
        worst = ops.argmax(ops.where(ops.isfinite(squares), squares, ops.full_like(squares, float("inf"))))
        place = ops.where(has_loss, ops.cast(worst, "int32"), LOSS)
        self.first_nonfinite_index.assign(ops.where(first, place, self.first_nonfinite_index))
        self.first_nonfinite_step.assign(
            ops.where(first, ops.cast(self.iterations, "int32"), self.first_nonfinite_step)
        )

    def _rescale(self, overflow, fits):
        clean = ops.where(fits, self.steps_since_overflow + 1, 0)
        grows = clean >= GROWTH_STEPS
        scale = ops.convert_to_tensor(self.loss_scale_factor)
        larger = ops.where(grows, ops.minimum(scale * 2.0, MAX_LOSS_SCALE), scale)
        self.loss_scale_factor.assign(ops.where(overflow, ops.maximum(scale * 0.5, 1.0), larger))
        self.steps_since_overflow.assign(ops.where(grows, 0, clean))

    def describe_nonfinite(self):
        """What went bad first, in words."""
        place = int(self.first_nonfinite_index)
        if place == LOSS:
            return "The loss"
        return f"The gradient (of {self._trainable_variables[place].path})"

    def _get_current_learning_rate(self):
        rate = super()._get_current_learning_rate()
        return rate * self.lr_factor if hasattr(self, "lr_factor") else rate

    def get_config(self):
        return {
            **super().get_config(),
            "global_clipnorm": self.global_clipnorm,
            "loss_scale_factor": self.initial_scale,
        }

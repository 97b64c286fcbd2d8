"""Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/): move hidden matrices by orthogonal steps.

    m <- mu m + g;    u = polar factor of g + mu m;    W <- W - lr sqrt(max(1, columns / rows)) u

A hidden matrix moves along the semi-orthogonal matrix nearest to its momentum (polar_express.py), so that every
direction of the matrix learns at the same rate. All other weights (embeddings, the head, biases, norms) are updated by
AdamW.
"""

import keras
from keras import ops, tree

from keras_seq.training.gradient_guard import GradientGuard
from keras_seq.training.gradient_lists import sums_of_squares
from keras_seq.training.polar_express import polar_express_each, wide_and_normalized

OTHER_MATRICES = {"embeddings", "head", "lora_kernel_a", "lora_kernel_b"}  # parts of paths; AdamW updates them


@keras.saving.register_keras_serializable(package="keras_seq")
class Muon(GradientGuard, keras.optimizers.Optimizer):
    """Update hidden matrices by Muon and all other weights by AdamW.

    Unlike `keras.optimizers.Muon` it treats the gates of a recurrent layer as separate matrices. A hidden matrix is a
    weight of two axes that is not called `embeddings` and not in a layer named `head`. A weight with an attribute
    `muon_blocks = n` holds n matrices side by side along its last axis (the gates of an LSTM): each is orthogonalized
    separately. With `muon_blocks = 0` it is not treated as a matrix (a depthwise convolution, decay rates).

    Args:
        learning_rate: Learning rate of the hidden matrices: the spectral norm of an update of a square matrix.
        adam_lr_ratio: Learning rate of the AdamW part, relative to `learning_rate`.
        momentum: mu in the formula.
        adam_beta_1: Decay of AdamW's first moment.
        adam_beta_2: Decay of AdamW's second moment.
        epsilon: AdamW's epsilon.
        weight_decay: Decoupled weight decay, times the learning rate, of weights with two axes.
        global_clipnorm: Maximum L2 norm of all gradients together; None, the default, does not clip.
        ns_steps: Matrix polynomials, of degree 5, that approximate the polar factor.
        iteration_dtype: Dtype of these polynomials; by default that of the matrix. bfloat16 is sufficient.
        name: Name of the optimizer.
        **kwargs: Further arguments of `GradientGuard` and `keras.optimizers.Optimizer`.

    Raises:
        ValueError: If `learning_rate` is below 0 or not finite, or `global_clipnorm` is not above 0.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.02,
        adam_lr_ratio: float = 0.2,
        momentum: float = 0.95,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.99,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        global_clipnorm: float | None = None,
        ns_steps: int = 3,
        iteration_dtype: str | None = None,
        name: str = "muon",
        **kwargs,
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, global_clipnorm=global_clipnorm, name=name, **kwargs)
        self.ns_steps, self.iteration_dtype = ns_steps, iteration_dtype
        self.adam_lr_ratio, self.momentum = adam_lr_ratio, momentum
        self.adam_beta_1, self.adam_beta_2, self.epsilon = adam_beta_1, adam_beta_2, epsilon

    @staticmethod
    def is_hidden_matrix(variable) -> bool:
        """Return whether Muon updates this weight; otherwise AdamW does."""
        excluded = getattr(variable, "muon_blocks", 1) == 0 or OTHER_MATRICES & set(variable.path.split("/"))
        return len(variable.shape) == 2 and not excluded

    def build(self, variables):
        """Create the optimizer's variables for these weights."""
        if self.built:
            return
        super().build(variables)
        # read here, because TensorFlow passes the inner tf.Variable to update_step, which lacks the attribute
        self.muon_blocks = [getattr(v, "muon_blocks", 1) for v in variables]
        self.momenta = self.add_optimizer_variables(variables, "momentum")
        self.velocities = [
            None if self.is_hidden_matrix(v) else self.add_variable_from_reference(v, name="velocity")
            for v in variables
        ]

    def _update(self, grads, variables):
        """Update in three parts, of which the polynomials are computed outside of XLA.

        XLA's matrix products are slower than TensorFlow's, in bfloat16 by far.
        """
        squares, matrices = self.compiled(lambda grads: self._squares_and_matrices(grads, variables), variables)(grads)
        self._orthogonal = tree.pack_sequence_as(matrices, polar_express_each(tree.flatten(matrices), self.ns_steps))
        self.compiled(lambda grads, squares: self._apply(grads, squares, variables), variables)(grads, squares)
        self._orthogonal = {}

    def _squares_and_matrices(self, grads, variables):
        """Return the sums of squares, and for each hidden matrix, by its index, the normalized blocks of g + mu m."""
        squares, matrices = sums_of_squares(grads), {}
        for variable, gradient in zip(variables, self.clipped(grads, squares, self.momenta[0].dtype), strict=True):
            index = self._get_variable_index(variable)
            if gradient is not None and self.velocities[index] is None:
                momentum = self.momenta[index]
                nesterov = gradient + self.momentum * (self.momentum * momentum + gradient)
                blocks = ops.split(nesterov, self.muon_blocks[index], axis=-1)
                matrices[index] = [wide_and_normalized(x, self.iteration_dtype or momentum.dtype) for x in blocks]
        return squares, matrices

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        """Update all variables; the corrections of AdamW's moments are those of the step."""
        step = ops.cast(self.iterations + 1, self.momenta[0].dtype)
        self._corrections = 1 - ops.power(self.adam_beta_1, step), 1 - ops.power(self.adam_beta_2, step)
        super()._backend_update_step(grads, trainable_variables, learning_rate)
        self._corrections = None

    def update_step(self, gradient, variable, learning_rate):
        """Update one weight.

        Args:
            gradient: Gradient of the weight.
            variable: The weight.
            learning_rate: Learning rate of the hidden matrices.
        """
        index = self._get_variable_index(variable)
        learning_rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        if self.velocities[index] is None:
            self._muon(gradient, variable, learning_rate, index)
        else:
            rate = learning_rate * self.adam_lr_ratio
            self._adam(gradient, variable, rate, self.momenta[index], self.velocities[index])

    def _apply_weight_decay(self, variables):
        """Decay the weights of two axes, but for those excluded by `exclude_from_weight_decay`."""
        super()._apply_weight_decay([v for v in variables if len(v.shape) == 2])

    def _muon(self, gradient, variable, learning_rate, index):
        momentum, orthogonal = self.momenta[index], self._orthogonal[index]
        self.assign(momentum, self.momentum * momentum + gradient)
        rows, columns = variable.shape
        columns //= len(orthogonal)
        scale = max(1.0, columns / rows) ** 0.5
        blocks = [ops.cast(x if rows <= columns else ops.transpose(x), variable.dtype) for x in orthogonal]
        self.assign_sub(variable, learning_rate * scale * self._direction(index, blocks))

    def _direction(self, index, blocks):
        """Return the direction of a weight, by its index, of its semi-orthogonal blocks `[rows, columns]`."""
        return ops.concatenate(blocks, axis=-1)

    def _adam(self, gradient, variable, learning_rate, momentum, velocity):
        mean_correction, square_correction = (ops.cast(x, variable.dtype) for x in self._corrections)
        self.assign_add(momentum, (1 - self.adam_beta_1) * (gradient - momentum))
        self.assign_add(velocity, (1 - self.adam_beta_2) * (ops.square(gradient) - velocity))
        deviation = ops.sqrt(velocity / square_correction)
        self.assign_sub(variable, learning_rate * (momentum / mean_correction) / (deviation + self.epsilon))

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        names = ("adam_lr_ratio", "momentum", "adam_beta_1", "adam_beta_2", "epsilon", "ns_steps", "iteration_dtype")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

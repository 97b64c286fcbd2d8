"""Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/): move hidden matrices by orthogonal steps.

    m <- mu m + g;    u = polar factor of g + mu m;    W <- W - lr sqrt(max(1, columns / rows)) u

A hidden matrix moves along the semi-orthogonal matrix nearest to its momentum (polar_express.py), so that every
direction of the matrix learns at the same rate. All other weights (embeddings, the head, biases, norms) are updated by
AdamW.
"""

import keras
from keras import ops

from keras_seq import kernels
from keras_seq.training.gradient_guard import GradientGuard
from keras_seq.training.gradient_lists import add_all, sums_of_squares, weighted_sums
from keras_seq.training.muon_blocks import muon_blocks
from keras_seq.training.polar_express import are_faster_together, polar_express, wide_and_normalized


def _at(indices, *lists):
    """Return the elements of each list at these indices."""
    return [[values[index] for index in indices] for values in lists]


def _blocks(matrices, num_blocks):
    """Return the blocks of matrices `[rows, columns]` of one shape as `[matrices blocks, rows, columns / blocks]`."""
    x = ops.stack(matrices)
    if num_blocks > 1:
        num, rows, columns = x.shape
        x = ops.swapaxes(ops.reshape(x, (num, rows, num_blocks, columns // num_blocks)), 1, 2)
        x = ops.reshape(x, (num * num_blocks, rows, columns // num_blocks))
    return x


def _matrices(blocks, num):
    """Return the matrices, as many as `num`, of their blocks."""
    num_blocks, rows, columns = blocks.shape
    if num_blocks > num:
        x = ops.swapaxes(ops.reshape(blocks, (num, -1, rows, columns)), 1, 2)
        blocks = ops.reshape(x, (num, rows, -1))
    return ops.unstack(blocks, num)


@keras.saving.register_keras_serializable(package="keras_seq")
class Muon(GradientGuard, keras.optimizers.Optimizer):
    """Update hidden matrices by Muon and all other weights by AdamW.

    Unlike `keras.optimizers.Muon` it treats the gates of a recurrent layer as separate matrices. A hidden matrix is a
    weight of two axes that is not called `embeddings` and not in a layer named `head`; of the layers of this package
    a rule knows more (muon_blocks.py). An attribute `muon_blocks = n` of a weight of your own says that it holds n
    matrices side by side along its last axis, each of which is orthogonalized separately, or, with 0, none.

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
        return muon_blocks(variable) > 0

    def build(self, variables):
        """Create the optimizer's variables for these weights."""
        if self.built:
            return
        super().build(variables)
        # here, because TensorFlow passes the inner tf.Variable to update_step, which lacks the class of the layer
        self.muon_blocks = [muon_blocks(v) for v in variables]
        self.momenta = self.add_optimizer_variables(variables, "momentum")
        self.velocities = [
            None if self.is_hidden_matrix(v) else self.add_variable_from_reference(v, name="velocity")
            for v in variables
        ]

    def _update(self, grads, variables):
        """Update in three parts, of which the polynomials are computed outside of XLA.

        XLA's matrix products are slower than TensorFlow's, in bfloat16 by far.
        """
        self._groups = self._groups_of(grads, variables)
        squares, matrices = self.compiled(lambda grads: self._squares_and_matrices(grads, variables), variables)(grads)
        self._orthogonal = [[polar_express(x, self.ns_steps) for x in group] for group in matrices]
        self.compiled(lambda grads, squares: self._apply(grads, squares, variables), variables)(grads, squares)
        self._groups = self._orthogonal = ()

    def _groups_of(self, grads, variables):
        """Return the hidden matrices, by their indices, in lists of such as are alike and faster together."""
        groups = {}
        for variable, gradient in zip(variables, grads, strict=True):
            index = self._get_variable_index(variable)
            if gradient is not None and self.velocities[index] is None:
                alike = tuple(variable.shape), variable.dtype, self.muon_blocks[index]
                groups.setdefault(alike if self._are_faster_together(index) else index, []).append(index)
        return [*groups.values()]

    def _are_faster_together(self, index):
        (rows, columns), dtype = self.momenta[index].shape, self.iteration_dtype or self.momenta[index].dtype
        return are_faster_together(min(rows, columns // self.muon_blocks[index]), dtype)

    def _squares_and_matrices(self, grads, variables):
        """Return the sums of squares, and for each group the normalized blocks of g + mu m, together or each."""
        squares, matrices = sums_of_squares(grads), []
        gradients = dict(zip(map(self._get_variable_index, variables), grads, strict=True))
        for group in self._groups:
            momenta = [self.momenta[index].value for index in group]
            clipped = self.clipped([gradients[index] for index in group], squares, momenta[0].dtype)
            # g + mu (mu m + g), divided by 1 + mu, for its length does not matter
            nesterov = weighted_sums(clipped, momenta, self.momentum**2 / (1 + self.momentum))
            blocks = _blocks(nesterov, self.muon_blocks[group[0]])
            x = wide_and_normalized(blocks, self.iteration_dtype or blocks.dtype)
            matrices.append([x] if self._are_faster_together(group[0]) else ops.unstack(x, x.shape[0]))
        return squares, matrices

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        """Update the hidden matrices by Muon, and the other weights by AdamW."""
        others = dict(zip(map(self._get_variable_index, trainable_variables), grads, strict=True))
        for group, orthogonal in zip(self._groups, self._orthogonal, strict=True):
            self._muon(group, [others.pop(index) for index in group], orthogonal, learning_rate)
        if others:
            self._adamw([*others], [*others.values()], learning_rate * self.adam_lr_ratio)

    def _apply_weight_decay(self, variables):
        """Decay the weights of two axes, but for those excluded by `exclude_from_weight_decay`."""
        super()._apply_weight_decay([v for v in variables if len(v.shape) == 2])

    def _muon(self, group, grads, orthogonal, learning_rate):
        """Update a group, given what `polar_express` returned for its blocks together or for each of them."""
        variables, momenta = _at(group, self._trainable_variables, self.momenta)
        add_all(momenta, grads, decay=self.momentum)
        dtype, (rows, columns) = momenta[0].dtype, momenta[0].shape
        columns //= self.muon_blocks[group[0]]
        blocks = ops.cast(orthogonal[0] if len(orthogonal) == 1 else ops.stack(orthogonal), dtype)
        blocks = ops.reshape(blocks, (-1, min(rows, columns), max(rows, columns)))
        rate = ops.cast(learning_rate, dtype) * max(1.0, columns / rows) ** 0.5
        steps = self._steps(group, blocks if rows <= columns else ops.swapaxes(blocks, 1, 2), -rate)
        add_all(variables, _matrices(steps, len(group)))

    def _steps(self, group, blocks, rate):
        """Return a rate times the directions of a group, given its semi-orthogonal blocks `[blocks, rows, columns]`."""
        return rate * blocks

    def _adamw(self, indices, grads, learning_rate):
        variables, momenta, velocities = _at(indices, self._trainable_variables, self.momenta, self.velocities)
        betas, dtype = (self.adam_beta_1, self.adam_beta_2), keras.backend.result_type(momenta[0].dtype, "float32")
        step = ops.cast(self.iterations + 1, dtype)
        corrections = [1 - ops.power(beta, step) for beta in betas]
        epsilon = self.epsilon * ops.sqrt(corrections[1])  # Keras's, of a root that is not corrected
        args = variables, grads, momenta, velocities, self.iterations, learning_rate, *betas, epsilon
        if kernel := kernels.dispatch("adam", None, *args):
            kernel(*args)
            return
        for variable, gradient, momentum, velocity in zip(variables, grads, momenta, velocities, strict=True):
            gradient, rate, *of_moments = (ops.cast(x, variable.dtype) for x in (gradient, learning_rate, *corrections))
            self.assign_add(momentum, (1 - self.adam_beta_1) * (gradient - momentum))
            self.assign_add(velocity, (1 - self.adam_beta_2) * (ops.square(gradient) - velocity))
            deviation = ops.sqrt(velocity / of_moments[1]) + self.epsilon
            self.assign_sub(variable, rate * (momentum / of_moments[0]) / deviation)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        names = ("adam_lr_ratio", "momentum", "adam_beta_1", "adam_beta_2", "epsilon", "ns_steps", "iteration_dtype")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

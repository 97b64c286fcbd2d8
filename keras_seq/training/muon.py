"""Muon and NorMuon: move hidden matrices by orthogonal steps, and all other weights by AdamW.

Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/), whose updates have all singular values near 1:
    m <- mu m + g;    u = polar factor of g + mu m;    W <- W - lr sqrt(max(1, columns / rows)) u
NorMuon (Li et al., 2025, arXiv:2510.05491), whose neurons, the columns of W, move equally far:
    v <- beta_2 v + (1 - beta_2) mean over rows of u^2;    n = u / sqrt(v);    u <- n |u| / |n|
The polar factor by matrix products alone, the Polar Express (Amsel et al., 2025, arXiv:2505.16932):
    X <- X / |X X^T|^(1/2);    X <- a_k X + (b_k X X^T + c_k (X X^T)^2) X    for k = 1, 2, ...
Step k maps each singular value s to a_k s + b_k s^3 + c_k s^5, the polynomial that brings all of [0.001, 1] nearest to
1 after the steps before it. The norm of X X^T, which step 1 computes anyway, leaves larger singular values than |X|.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers import MLSTM, SLSTM, CausalDepthwiseConv1D, Mamba2, SelectiveStateSpace
from keras_seq.layers.dense import BlockDiagonalDense
from keras_seq.layers.recurrent.base import RecurrentBase
from keras_seq.layers.recurrent.min_rnn import MinimalRNN
from keras_seq.ops.dispatch import on_cpu
from keras_seq.training import tensor_lists
from keras_seq.training.guard import GradientGuard
from keras_seq.training.tensor_lists import ON_TORCH, add_all, sums_of_squares, weighted_sums

# Algorithm 1 of the paper, with its safety factor of 1.01 against rounding in bfloat16. The last one may be repeated.
COEFFICIENTS = [
    (a / 1.01, b / 1.01**3, c / 1.01**5)
    for a, b, c in (
        (8.28721201814563, -23.595886519098837, 17.300387312530933),
        (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
        (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
        (3.3184196573706015, -2.488488024314874, 0.51004894012372),
        (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
        (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
        (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    )
]
MIN_ROWS = 256  # of matrices that TensorFlow multiplies together on a CPU; of smaller ones it has several at once

ADAPTERS = {f"lora_{name}_{part}" for name in ("kernel", "embeddings") for part in "ab"}  # of Keras
PARTS_OF_PATHS = {"embeddings", "reverse_embeddings", "head", *ADAPTERS}  # of what is no hidden matrix
NUMBERS = ("bias", "log_a", "bonus", "transitions")  # ends of names of what is no matrix, even with two axes
TABLES = (*NUMBERS, "gates_kernel", "_lora_a", "_lora_b")  # in this package's layers
TWO_IN_ONE = {  # matrices of layers inside of a layer that splits their outputs
    SelectiveStateSpace: ("input/kernel",),
    Mamba2: ("input/kernel", "bc/kernel"),
    MLSTM: ("input/kernel",),
}
SMALLEST_BLOCK = 9  # rows; of block-diagonal matrices: many tiny ones are left to AdamW


def muon_blocks(variable) -> int:
    """Return the matrices in a weight that are orthogonalized each by itself: a rule of names, shapes and layers.

    1 is a matrix; n are n side by side along the last axis, such as the gates of an LSTM; 0 are numbers of features,
    even where they have two axes: a depthwise convolution, decay rates, embeddings. A weight's own attribute
    `muon_blocks`, of a layer from elsewhere, comes before the rule.
    """
    if PARTS_OF_PATHS & set(variable.path.split("/")) or len(variable.shape) != 2:
        return 0
    layer, (rows, columns) = getattr(variable, "layer_class", object), variable.shape
    if hasattr(variable, "muon_blocks"):
        return variable.muon_blocks
    if layer is object:  # not of this package
        return int(not variable.name.endswith("bias"))
    if variable.name.endswith(TABLES) or issubclass(layer, CausalDepthwiseConv1D):
        return 0
    if issubclass(layer, (RecurrentBase, MinimalRNN)):
        return layer.num_gates
    if issubclass(layer, BlockDiagonalDense) or (variable.name == "recurrent_kernel" and issubclass(layer, SLSTM)):
        return columns // rows if rows >= SMALLEST_BLOCK else 0
    ends = [end for kind, names in TWO_IN_ONE.items() if issubclass(layer, kind) for end in names]
    return 2 if variable.path.endswith(tuple(f"/{end}" for end in ends)) else 1


def wide_and_normalized(x, dtype: str):
    """Return matrices `[..., rows, columns]`, transposed if they are tall, divided by their Frobenius norms."""
    x = x if x.shape[-2] <= x.shape[-1] else ops.swapaxes(x, -1, -2)
    return ops.cast(x / (ops.norm(x, axis=(-2, -1), keepdims=True) + 1e-7), dtype)


def polar_express(x, ns_steps: int):
    """Move all singular values of `wide_and_normalized` matrices near 1, in so many steps, in the dtype of x."""
    coefficients = (COEFFICIENTS + COEFFICIENTS[-1:] * ns_steps)[:ns_steps]
    if ON_TORCH:
        return tensor_lists.polynomials_on_torch(x, coefficients)
    for k, (a, b, c) in enumerate(coefficients):
        gram = ops.matmul(x, ops.swapaxes(x, -1, -2))
        square = ops.matmul(gram, gram)
        if k == 0:  # 1 / |X X^T|^(1/2), from the trace of (X X^T)^2; the norm is at least rows^(-1/2), unless x is zero
            squared_norm = ops.sum(ops.cast(ops.diagonal(square, axis1=-2, axis2=-1), "float32"), axis=-1)
            factor = ops.maximum(squared_norm, 1e-12)[..., None, None] ** -0.25
            a, b, c = (ops.cast(power, x.dtype) for power in (a * factor, b * factor**3, c * factor**5))
        x = a * x + ops.matmul(b * gram + c * square, x)
    return x


def are_faster_together(rows: int, dtype: str) -> bool:
    """Return whether one product of many matrices of so many rows takes less time than one for each."""
    if ON_TORCH or not on_cpu():
        return True
    return keras.backend.backend() == "tensorflow" and dtype == "float32" and rows >= MIN_ROWS


def _at(indices, *lists):
    """Return the elements of each list at these indices."""
    return [[values[index] for index in indices] for values in lists]


def _split_blocks(matrices, num_blocks):
    """Return the blocks of matrices `[rows, columns]` of one shape as `[matrices blocks, rows, columns / blocks]`."""
    x = ops.stack(matrices)
    if num_blocks > 1:
        num, rows, columns = x.shape
        x = ops.swapaxes(ops.reshape(x, (num, rows, num_blocks, columns // num_blocks)), 1, 2)
        x = ops.reshape(x, (num * num_blocks, rows, columns // num_blocks))
    return x


def _join_blocks(blocks, num):
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
    a rule knows more (`muon_blocks`). An attribute `muon_blocks = n` of a weight of your own says that it holds n
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
        *,
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

    def build(self, variables):
        """Create the optimizer's variables for these weights."""
        if self.built:
            return
        super().build(variables)
        # here, because TensorFlow passes the inner tf.Variable to update_step, which lacks the class of the layer
        self.num_blocks = [muon_blocks(v) for v in variables]
        self.momenta = self.add_optimizer_variables(variables, "momentum")
        self.velocities = [
            None if blocks else self.add_variable_from_reference(v, name="velocity")
            for v, blocks in zip(variables, self.num_blocks, strict=True)
        ]

    def _update(self, grads, variables):
        """Update in three parts, the polynomials outside of XLA, whose matrix products are slower than TensorFlow's."""
        self._groups = self._groups_of(grads, variables)
        squares, matrices = self.compiled(lambda grads: self._squares_and_matrices(grads, variables), variables)(grads)
        self._orthogonal = [[polar_express(x, self.ns_steps) for x in group] for group in matrices]
        self.compiled(lambda grads, squares: self._apply(grads, squares, variables), variables)(grads, squares)
        self._groups = self._orthogonal = ()

    def _groups_of(self, grads, variables):
        """Return the indices of the hidden matrices, in a list those that are alike and faster together."""
        groups = {}
        for variable, gradient in zip(variables, grads, strict=True):
            index = self.index_of(variable)
            if gradient is not None and self.velocities[index] is None:
                alike = tuple(variable.shape), variable.dtype, self.num_blocks[index]
                groups.setdefault(alike if self._are_faster_together(index) else index, []).append(index)
        return [*groups.values()]

    def _are_faster_together(self, index):
        (rows, columns), dtype = self.momenta[index].shape, self.iteration_dtype or self.momenta[index].dtype
        return are_faster_together(min(rows, columns // self.num_blocks[index]), dtype)

    def _squares_and_matrices(self, grads, variables):
        """Return the sums of squares, and for each group the normalized blocks of g + mu m, together or each."""
        squares, matrices = sums_of_squares(grads), []
        gradients = dict(zip(map(self.index_of, variables), grads, strict=True))
        for group in self._groups:
            momenta = [self.momenta[index].value for index in group]
            clipped = self.clipped([gradients[index] for index in group], squares, momenta[0].dtype)
            # g + mu (mu m + g), divided by 1 + mu, for its length does not matter
            nesterov = weighted_sums(clipped, momenta, self.momentum**2 / (1 + self.momentum))
            blocks = _split_blocks(nesterov, self.num_blocks[group[0]])
            x = wide_and_normalized(blocks, self.iteration_dtype or blocks.dtype)
            matrices.append([x] if self._are_faster_together(group[0]) else ops.unstack(x, x.shape[0]))
        return squares, matrices

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        """Update the hidden matrices by Muon, and the other weights by AdamW."""
        others = dict(zip(map(self.index_of, trainable_variables), grads, strict=True))
        for group, orthogonal in zip(self._groups, self._orthogonal, strict=True):
            self._muon(group, [others.pop(index) for index in group], orthogonal, learning_rate)
        if others:
            self._adamw([*others], [*others.values()], learning_rate * self.adam_lr_ratio)

    def _apply_weight_decay(self, variables):
        """Decay the weights of two axes, but for those excluded by `exclude_from_weight_decay`."""
        super()._apply_weight_decay([v for v in variables if len(v.shape) == 2])

    def _muon(self, group, grads, orthogonal, learning_rate):
        """Update a group, given what `polar_express` returned for its blocks together or for each of them."""
        variables, momenta = _at(group, self.trained, self.momenta)
        add_all(momenta, grads, decay=self.momentum)
        dtype, (rows, columns) = momenta[0].dtype, momenta[0].shape
        columns //= self.num_blocks[group[0]]
        blocks = ops.cast(orthogonal[0] if len(orthogonal) == 1 else ops.stack(orthogonal), dtype)
        blocks = ops.reshape(blocks, (-1, min(rows, columns), max(rows, columns)))
        rate = ops.cast(learning_rate, dtype) * max(1.0, columns / rows) ** 0.5
        steps = self._steps(group, blocks if rows <= columns else ops.swapaxes(blocks, 1, 2), -rate)
        add_all(variables, _join_blocks(steps, len(group)))

    def _steps(self, group, blocks, rate):
        """Return a rate times the directions of a group, given its semi-orthogonal blocks `[blocks, rows, columns]`."""
        return rate * blocks

    def _adamw(self, indices, grads, learning_rate):
        variables, momenta, velocities = _at(indices, self.trained, self.momenta, self.velocities)
        betas = self.adam_beta_1, self.adam_beta_2
        if ON_TORCH:
            args = variables, grads, momenta, velocities, self.iterations, learning_rate, betas, self.epsilon
            tensor_lists.adam_on_torch(*args)
            return
        step = ops.cast(self.iterations + 1, keras.backend.result_type(momenta[0].dtype, "float32"))
        corrections = [1 - ops.power(beta, step) for beta in betas]
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


@keras.saving.register_keras_serializable(package="keras_seq")
class NorMuon(Muon):
    """Update hidden matrices by Muon with normalized neurons, and all other weights by AdamW.

    Args:
        learning_rate: As for `Muon`.
        neuron_beta_2: Decay of the mean squares of the columns, from 0 up to but not including 1.
        name: Name of the optimizer.
        **kwargs: Arguments of `Muon`.

    Raises:
        ValueError: If `neuron_beta_2` is out of its range, or as `Muon`.
    """

    def __init__(self, learning_rate=0.02, *, neuron_beta_2: float = 0.95, name: str = "normuon", **kwargs):
        super().__init__(learning_rate, name=name, **kwargs)
        self.neuron_beta_2 = checks.fraction("neuron_beta_2", neuron_beta_2)

    def build(self, variables):
        """Create the optimizer's variables for these weights."""
        if self.built:
            return
        super().build(variables)
        pairs = zip(variables, self.num_blocks, strict=True)
        self.neuron_velocities = [self._neuron_velocity(v, blocks) if blocks else None for v, blocks in pairs]

    def _neuron_velocity(self, variable, blocks):
        name = f"{variable.path.replace('/', '_')}_neuron_velocity"
        return self.add_variable(
            (blocks, variable.shape[1] // blocks), initializer="zeros", dtype=variable.dtype, name=name
        )

    def _steps(self, group, blocks, rate):
        velocities, squares = [self.neuron_velocities[index] for index in group], ops.mean(blocks * blocks, axis=1)
        new = ops.split(squares, len(group))
        add_all(velocities, new, decay=self.neuron_beta_2, factor=1 - self.neuron_beta_2)
        factors = 1 / (ops.concatenate([v.value for v in velocities]) ** 0.5 + self.epsilon)  # of columns
        norms = [ops.sum(x, axis=-1, keepdims=True) for x in (squares, squares * factors * factors)]  # before, after
        factors *= (norms[0] / (norms[1] + self.epsilon)) ** 0.5
        return super()._steps(group, blocks, rate * factors[:, None])

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), "neuron_beta_2": self.neuron_beta_2}

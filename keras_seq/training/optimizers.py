"""Define optimizers by name, with Keras's arguments and defaults plus clipping and a non-finite guard (GradientGuard).

Values that differ from Keras's defaults in a training (clipping at 1, momentum 0.9 for SGD) are in `TrainConfig`.

Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) moves a hidden matrix along the nearest
semi-orthogonal matrix to its momentum, so that every direction of the matrix learns at the same rate:

    m <- mu m + g;    u = newton_schulz(g + mu m);    W <- W - lr sqrt(max(1, columns / rows)) u

All other weights (embeddings, the head, biases, norms) are updated by AdamW.
"""

import keras
from keras import ops

from keras_seq.training.gradient_guard import GradientGuard

# The quintic whose slope at zero is steepest: small singular values rise fast.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def newton_schulz(x, ns_steps: int = 5, dtype: str | None = None):
    """Return matrices with their singular values moved near one, by Newton-Schulz iteration.

    Args:
        x: `[..., rows, columns]`.
        ns_steps: Iterations.
        dtype: Dtype of the iteration; by default that of `x`.

    Returns:
        `[..., rows, columns]`, in the dtype of `x`.
    """
    a, b, c = COEFFICIENTS
    input_dtype = x.dtype
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else ops.swapaxes(x, -1, -2)
    x = ops.cast(x / (ops.sqrt(ops.sum(ops.square(x), axis=(-2, -1), keepdims=True)) + 1e-7), dtype or input_dtype)
    for _ in range(ns_steps):
        gram = ops.matmul(x, ops.swapaxes(x, -1, -2))
        x = a * x + ops.matmul(b * gram + c * ops.matmul(gram, gram), x)
    return ops.cast(x if wide else ops.swapaxes(x, -1, -2), input_dtype)


@keras.saving.register_keras_serializable(package="keras_seq")
class SGD(GradientGuard, keras.optimizers.SGD):
    """Update weights by gradient descent: `W <- W - lr g`.

    With `momentum=0.9, nesterov=True` (Sutskever et al., 2013), as in `TrainConfig`:
    `m <- 0.9 m - lr g; W <- W + 0.9 m - lr g`.

    Args:
        *args: Arguments of `keras.optimizers.SGD`, with its defaults.
        global_clipnorm: Maximum L2 norm of all gradients together; None does not clip.
        loss_scale_factor: Initial scale of the loss, for float16; None does not scale.
        **kwargs: Arguments of `keras.optimizers.SGD`, with its defaults.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Adagrad(GradientGuard, keras.optimizers.Adagrad):
    """Update weights by Adagrad (Duchi et al., 2011): `v <- v + g^2; W <- W - lr g / sqrt(v)`.

    Args:
        *args: Arguments of `keras.optimizers.Adagrad`, with its defaults.
        global_clipnorm: Maximum L2 norm of all gradients together; None does not clip.
        loss_scale_factor: Initial scale of the loss, for float16; None does not scale.
        **kwargs: Arguments of `keras.optimizers.Adagrad`, with its defaults.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class RMSprop(GradientGuard, keras.optimizers.RMSprop):
    """Update weights by RMSprop (Tieleman & Hinton, 2012): `v <- 0.9 v + 0.1 g^2; W <- W - lr g / sqrt(v)`.

    Args:
        *args: Arguments of `keras.optimizers.RMSprop`, with its defaults.
        global_clipnorm: Maximum L2 norm of all gradients together; None does not clip.
        loss_scale_factor: Initial scale of the loss, for float16; None does not scale.
        **kwargs: Arguments of `keras.optimizers.RMSprop`, with its defaults.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Adam(GradientGuard, keras.optimizers.Adam):
    """Update weights by Adam (Kingma & Ba, 2015, arXiv:1412.6980).

    `m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; W <- W - lr m_hat / (sqrt(v_hat) + eps)`, m_hat and v_hat
    bias-corrected.

    Args:
        *args: Arguments of `keras.optimizers.Adam`, with its defaults.
        global_clipnorm: Maximum L2 norm of all gradients together; None does not clip.
        loss_scale_factor: Initial scale of the loss, for float16; None does not scale.
        **kwargs: Arguments of `keras.optimizers.Adam`, with its defaults.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class AdamW(GradientGuard, keras.optimizers.AdamW):
    """Update weights by AdamW (Loshchilov & Hutter, 2019, arXiv:1711.05101): Adam after `W <- W - lr weight_decay W`.

    Args:
        *args: Arguments of `keras.optimizers.AdamW`, with its defaults.
        global_clipnorm: Maximum L2 norm of all gradients together; None does not clip.
        loss_scale_factor: Initial scale of the loss, for float16; None does not scale.
        **kwargs: Arguments of `keras.optimizers.AdamW`, with its defaults.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Lion(GradientGuard, keras.optimizers.Lion):
    """Update weights by Lion (Chen et al., 2023, arXiv:2302.06675).

    `W <- W - lr sign(0.9 m + 0.1 g); m <- 0.99 m + 0.01 g`. Each update has size `learning_rate`; use 1/3 to 1/10 of
    Adam's learning rate.

    Args:
        *args: Arguments of `keras.optimizers.Lion`, with its defaults.
        global_clipnorm: Maximum L2 norm of all gradients together; None does not clip.
        loss_scale_factor: Initial scale of the loss, for float16; None does not scale.
        **kwargs: Arguments of `keras.optimizers.Lion`, with its defaults.
    """


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
        iteration_dtype: Dtype of the Newton-Schulz iteration; by default that of the matrix. bfloat16 is sufficient.
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
        iteration_dtype: str | None = None,
        name: str = "muon",
        **kwargs,
    ):
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, name=name, **kwargs)
        self.iteration_dtype = iteration_dtype
        self.adam_lr_ratio, self.momentum, self._weight_decay = adam_lr_ratio, momentum, weight_decay
        self.adam_beta_1, self.adam_beta_2, self.epsilon = adam_beta_1, adam_beta_2, epsilon

    @staticmethod
    def is_hidden_matrix(variable) -> bool:
        """Return whether Muon updates this weight; otherwise AdamW does."""
        excluded = getattr(variable, "muon_blocks", 1) == 0 or {"embeddings", "head"} & set(variable.path.split("/"))
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
        if self._weight_decay and len(variable.shape) == 2:
            self.assign_sub(variable, variable * learning_rate * self._weight_decay)
        if self.velocities[index] is None:
            self._muon(gradient, variable, learning_rate, self.momenta[index], self.muon_blocks[index])
        else:
            rate = learning_rate * self.adam_lr_ratio
            self._adam(gradient, variable, rate, self.momenta[index], self.velocities[index])

    def _muon(self, gradient, variable, learning_rate, momentum, blocks):
        self.assign(momentum, self.momentum * momentum + gradient)
        rows, columns = variable.shape
        direction = ops.reshape(gradient + self.momentum * momentum, (rows, blocks, columns // blocks))
        direction = ops.swapaxes(newton_schulz(ops.swapaxes(direction, 0, 1), dtype=self.iteration_dtype), 0, 1)
        scale = max(1.0, columns / blocks / rows) ** 0.5
        self.assign_sub(variable, learning_rate * scale * ops.reshape(direction, (rows, columns)))

    def _adam(self, gradient, variable, learning_rate, momentum, velocity):
        step = ops.cast(self.iterations + 1, variable.dtype)
        self.assign_add(momentum, (1 - self.adam_beta_1) * (gradient - momentum))
        self.assign_add(velocity, (1 - self.adam_beta_2) * (ops.square(gradient) - velocity))
        mean = momentum / (1 - ops.power(self.adam_beta_1, step))
        deviation = ops.sqrt(velocity / (1 - ops.power(self.adam_beta_2, step)))
        self.assign_sub(variable, learning_rate * mean / (deviation + self.epsilon))

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        names = ("adam_lr_ratio", "momentum", "adam_beta_1", "adam_beta_2", "epsilon", "iteration_dtype")
        own_config = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **own_config, "weight_decay": self._weight_decay}


OPTIMIZERS = {
    "sgd": SGD,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adam": Adam,
    "adamw": AdamW,
    "lion": Lion,
    "muon": Muon,
}
"""Optimizer classes by their names in `TrainConfig.optimizer`."""

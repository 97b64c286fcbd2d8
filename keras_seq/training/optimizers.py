"""Optimizers by name, with Keras's arguments and defaults, each of which can clip and watches its gradients.

What a training takes instead of Keras's defaults (clipping at 1, momentum 0.9 for SGD) is in `Train` (settings.py).

Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/) moves a hidden matrix along the nearest
semi-orthogonal matrix to its momentum, so that every direction of the matrix learns at the same rate:

    m <- mu m + g;    u = orthogonal(g + mu m);    W <- W - lr sqrt(max(1, columns / rows)) u

All else (embeddings, the output matrix, biases, norms) is moved by AdamW.
"""

import keras
from keras import ops

from keras_seq.training.gradient_guard import GradientGuard

# The quintic whose slope at zero is steepest: small singular values rise fast.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def newton_schulz(x, steps=5, dtype=None):
    """The matrices `[..., rows, columns]` with their singular values moved near one, by Newton-Schulz iteration.

    With a `dtype` the iteration runs in it; the result has the dtype of `x`.
    """
    a, b, c = COEFFICIENTS
    given = x.dtype
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else ops.swapaxes(x, -1, -2)
    x = ops.cast(x / (ops.sqrt(ops.sum(ops.square(x), axis=(-2, -1), keepdims=True)) + 1e-7), dtype or given)
    for _ in range(steps):
        gram = ops.matmul(x, ops.swapaxes(x, -1, -2))
        x = a * x + ops.matmul(b * gram + c * ops.matmul(gram, gram), x)
    return ops.cast(x if wide else ops.swapaxes(x, -1, -2), given)


@keras.saving.register_keras_serializable(package="keras_seq")
class SGD(GradientGuard, keras.optimizers.SGD):
    """`keras.optimizers.SGD`, watched: `W <- W - lr g`.

    With `momentum=0.9, nesterov=True` (Sutskever et al., 2013), as `Train` has it:
    `m <- 0.9 m - lr g; W <- W + 0.9 m - lr g`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Adagrad(GradientGuard, keras.optimizers.Adagrad):
    """`keras.optimizers.Adagrad`, watched (Duchi et al., 2011): `v <- v + g^2; W <- W - lr g / sqrt(v)`."""


@keras.saving.register_keras_serializable(package="keras_seq")
class RMSprop(GradientGuard, keras.optimizers.RMSprop):
    """`keras.optimizers.RMSprop`, watched (Tieleman & Hinton, 2012): as Adagrad, `v <- 0.9 v + 0.1 g^2`."""


@keras.saving.register_keras_serializable(package="keras_seq")
class Adam(GradientGuard, keras.optimizers.Adam):
    """`keras.optimizers.Adam`, watched (Kingma & Ba, 2015): as RMSprop, with a mean of g for g, both without bias."""


@keras.saving.register_keras_serializable(package="keras_seq")
class AdamW(GradientGuard, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, watched (Loshchilov & Hutter, 2019): Adam, after `W <- W - lr weight_decay W`."""


@keras.saving.register_keras_serializable(package="keras_seq")
class Lion(GradientGuard, keras.optimizers.Lion):
    """`keras.optimizers.Lion`, watched (Chen et al., 2023): `W <- W - lr sign(0.9 m + 0.1 g); m <- 0.99 m + 0.01 g`.

    Every weight moves by the whole learning rate, so it wants a third to a tenth of Adam's.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Muon(GradientGuard, keras.optimizers.Optimizer):
    """Muon for the hidden matrices, AdamW for the rest.

    A hidden matrix is a weight of two axes that is no `embeddings` and in no layer named `head`. A weight
    with an attribute `matrix_blocks = n` holds n matrices side by side along its last axis (the gates of an LSTM):
    each is orthogonalised on its own; with `matrix_blocks = 0` it is no matrix but a table of numbers (a
    depthwise convolution, decay rates).

    Args:
        learning_rate: of the hidden matrices: the length of the step in units of a matrix's spectral norm.
        adam_ratio: AdamW's learning rate as a fraction of it.
        momentum: mu in the formula.
        beta_1, beta_2, epsilon: AdamW's.
        decay: decoupled weight decay, times the learning rate, of weights with two axes.
        clip_norm: largest L2 norm of all gradients together; None, the default, clips nothing.
        iteration_dtype: in which a matrix is made orthogonal; by default its own. bfloat16 is enough.
    """

    def __init__(
        self,
        learning_rate=0.02,
        adam_lr_ratio=0.2,
        momentum=0.95,
        adam_beta_1=0.9,
        adam_beta_2=0.99,
        epsilon=1e-8,
        weight_decay=0.0,
        global_clipnorm=None,
        iteration_dtype=None,
        name="muon",
        **kwargs,
    ):
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, name=name, **kwargs)
        self.iteration_dtype = iteration_dtype
        self.adam_lr_ratio, self.momentum, self.weight_decay = adam_lr_ratio, momentum, weight_decay
        self.adam_beta_1, self.adam_beta_2, self.epsilon = adam_beta_1, adam_beta_2, epsilon

    @staticmethod
    def is_hidden_matrix(variable):
        """Whether Muon moves this weight; AdamW does if not."""
        excluded = getattr(variable, "muon_blocks", 1) == 0 or {"embeddings", "head"} & set(variable.path.split("/"))
        return len(variable.shape) == 2 and not excluded

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        # read here, for TensorFlow's update step is given the tf.Variable inside, which has no such attribute
        self.muon_blocks = [getattr(v, "muon_blocks", 1) for v in variables]
        self.momenta = self.add_optimizer_variables(variables, "momentum")
        self.velocities = [
            None if self.is_hidden_matrix(v) else self.add_variable_from_reference(v, name="velocity")
            for v in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        """One weight's step."""
        index = self._get_variable_index(variable)
        learning_rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        if self.weight_decay and len(variable.shape) == 2:
            self.assign_sub(variable, variable * learning_rate * self.weight_decay)
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
        names = ("adam_lr_ratio", "momentum", "beta_1", "beta_2", "epsilon", "decay", "iteration_dtype")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


OPTIMIZERS = {
    "sgd": SGD,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adam": Adam,
    "adamw": AdamW,
    "lion": Lion,
    "muon": Muon,
}

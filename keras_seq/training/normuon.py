"""NorMuon (Li et al., 2025, arXiv:2510.05491): Muon whose neurons, the columns of a matrix, move equally far.

    v <- beta_2 v + (1 - beta_2) mean over rows of u^2;    n = u / sqrt(v)
    W <- W - lr sqrt(max(1, columns / rows)) n |u| / |n|

u is Muon's semi-orthogonal matrix (muon.py), whose columns differ in length where it is not square or its singular
values are not all 1. The norm of the whole stays that of Muon, so learning rates do, too; the paper's is a constant.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.training.gradient_lists import add_all
from keras_seq.training.muon import Muon


@keras.saving.register_keras_serializable(package="keras_seq")
class NorMuon(Muon):
    """Update hidden matrices by Muon with normalized neurons, and all other weights by AdamW.

    Args:
        *args: Arguments of `Muon`.
        neuron_beta_2: Decay of the mean squares of the columns, from 0 up to but not including 1.
        name: Name of the optimizer.
        **kwargs: Arguments of `Muon`.

    Raises:
        ValueError: If `neuron_beta_2` is out of its range, or as `Muon`.
    """

    def __init__(self, *args, neuron_beta_2: float = 0.95, name: str = "normuon", **kwargs):
        super().__init__(*args, name=name, **kwargs)
        self.neuron_beta_2 = checks.fraction("neuron_beta_2", neuron_beta_2)

    def build(self, variables):
        """Create the optimizer's variables for these weights."""
        if self.built:
            return
        super().build(variables)
        self.neuron_velocities = [self._neuron_velocity(v) if self.is_hidden_matrix(v) else None for v in variables]

    def _neuron_velocity(self, variable):
        blocks = self.muon_blocks[self._get_variable_index(variable)]
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

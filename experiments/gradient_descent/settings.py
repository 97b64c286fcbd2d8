"""Settings and methods of `experiments.gradient_descent`."""

import dataclasses

from experiments.frame.option_checks import check_options
from experiments.frame.settings import LogDir, Resume, Smoke, check_multiple


@dataclasses.dataclass(frozen=True)
class Method:
    """One variant of gradient descent, with a learning rate of `relative_rate / L`; L is the largest curvature."""

    description: str
    relative_rate: float
    stochastic: bool = False  # a step uses a few examples, instead of all
    momentum: float = 0.0  # Nesterov's
    decay: bool = False  # of the learning rate, as 1 / (1 + epochs)


METHODS = {
    "full": Method("full batch, rate 1 / L", 1.0),
    "full-momentum": Method("full batch, rate 1 / L, momentum 0.7", 1.0, momentum=0.7),
    "stochastic": Method("small batches, rate 0.1 / L", 0.1, stochastic=True),
    "stochastic-slow": Method("small batches, rate 0.03 / L", 0.03, stochastic=True),
    "stochastic-decaying": Method("small batches, rate 0.5 / L, decaying", 0.5, stochastic=True, decay=True),
}


@dataclasses.dataclass(frozen=True)
class GradientDescentConfig:
    """Compare full-batch and stochastic gradient descent."""

    num_examples: int = 2048
    """Number of examples N, at least 20 per feature: fewer might be separable, and then there is no optimum."""
    num_features: int = 20
    """Number of features D. The scale of the last is 0.4 times that of the first, so that curvatures differ."""
    batch_size: int = 16
    """Batch size of the stochastic methods, a divisor of N."""
    epochs: int = 50
    """Number of epochs of each method, N gradients each."""
    seed: int = 0
    """Random seed of the examples and of their order."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False

    def __post_init__(self):
        check_options(self, num_features=1, batch_size=1, epochs=2)
        check_options(self, num_examples=20 * self.num_features)
        check_multiple(f"--batch-size {self.batch_size}: --num-examples", self.num_examples, self.batch_size)


SMOKE = {"num_examples": 240, "num_features": 4, "batch_size": 8, "epochs": 10}

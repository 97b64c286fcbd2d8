"""How do full-batch and stochastic gradient descent compare on a logistic regression with a known optimum?

    f(w) = mean over i of log(1 + exp(x_i w)) - y_i x_i w          f(w_t) - f* <= L |w_0 - w*|^2 / 2 t  at rate 1 / L

    python -m experiments.gradient_descent
    python -m experiments.gradient_descent --smoke                 # tiny sizes, takes seconds

Time: 25 seconds on 2 cores.

The axis is the number of gradients computed: one for each example that a step uses, the "tokens" of the logs. L is the
largest curvature. Expected: small batches are ahead after 2 epochs, full batches after 50 (docs/experiments.md).
"""

import dataclasses
import math
import pathlib
from collections.abc import Sequence

import keras
import numpy as np

from experiments.common.command import experiment_main
from experiments.common.jobs import run_once
from keras_seq import training
from keras_seq.commands.options import LogDir, Resume, Smoke, check_multiple, check_options
from keras_seq.data import ArrayBatches
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table
from keras_seq.runs.folders import run_config
from keras_seq.tracking import Summaries


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


class Problem:
    """Examples `x [N, D]`, `y [N]`; their `optimum [D]` with the `lowest_loss`, and the largest `curvature` L."""

    def __init__(self, num_examples: int, num_features: int, seed: int):
        random = np.random.default_rng(seed)
        scales = np.geomspace(1.0, 0.4, num_features)
        self.x = (random.normal(size=(num_examples, num_features)) * scales).astype("float32").astype("float64")
        true_weights = 0.3 * random.normal(size=num_features) / scales
        self.y = (random.random(num_examples) < self._probabilities(true_weights)).astype("float64")
        self.curvature = float(np.linalg.eigvalsh(self.x.T @ self.x)[-1] / (4 * num_examples))
        self.optimum = self._newton(np.zeros(num_features))
        self.lowest_loss = self.loss(self.optimum)

    def _probabilities(self, w):
        return 1 / (1 + np.exp(-self.x @ w))

    def loss(self, w: np.ndarray) -> float:
        """Return f(w) in nats, for `w [D]`."""
        z = self.x @ w
        return float(np.mean(np.logaddexp(0, z) - self.y * z))

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Return the gradient of f at `w [D]`, `[D]`."""
        return self.x.T @ (self._probabilities(w) - self.y) / len(self.y)

    def _newton(self, w):
        for _ in range(50):
            p = self._probabilities(w)
            hessian = (self.x.T * (p * (1 - p))) @ self.x / len(self.y)
            w = w - np.linalg.solve(hessian, self.gradient(w))
            if np.linalg.norm(self.gradient(w)) < 1e-12:
                return w
        raise ValueError("No optimum after 50 steps of Newton's method: give more --num-examples or another --seed.")


def train_one(run: pathlib.Path, config: GradientDescentConfig, name: str, problem: Problem) -> dict:
    """Train with one method, from zero weights."""
    method = METHODS[name]
    batch_size = config.batch_size if method.stochastic else config.num_examples
    epoch = config.num_examples // batch_size  # in steps
    steps, rate = config.epochs * epoch, method.relative_rate / problem.curvature
    logit = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="logit")
    model = keras.Sequential([keras.Input((config.num_features,)), logit], name="logistic_regression")
    train = training.TrainConfig(log_every=epoch, validate_every=2 * epoch, checkpoint_every=10 * epoch)
    schedule = keras.optimizers.schedules.InverseTimeDecay(rate, epoch, 1.0) if method.decay else rate
    model.compile(
        training.OPTIMIZERS["sgd"](schedule, momentum=method.momentum, nesterov=method.momentum > 0),
        keras.losses.BinaryCrossentropy(from_logits=True),
        steps_per_execution=train.steps_per_execution,
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    described = dataclasses.replace(train, optimizer="sgd", learning_rate=rate, warmup_steps=0, final_lr_fraction=1.0)
    content = run_config(config, name, method, described, seed=config.seed)
    content["train"]["global_clipnorm"] = None  # as in the optimizer above

    def validate():
        loss = problem.loss(model.get_weights()[0][:, 0].astype("float64"))
        return Summaries({"val_loss": loss, "suboptimality": loss - problem.lowest_loss})

    batches = ArrayBatches((problem.x.astype("float32"), problem.y[:, None].astype("float32")), batch_size, config.seed)
    result = {"learning_rate": rate, "batch_size": batch_size, "steps": steps}
    sizes = (batch_size, steps, train)
    return training.train_model(run, model, batches.dataset, *sizes, validate, content, finish=lambda _: result)


def suboptimality(run: pathlib.Path, num_examples: int) -> dict[int, float]:
    """Return the suboptimality of a run by the epochs after which it was validated."""
    return {n // num_examples: value for n, value in zip(*plots.curve(run, "suboptimality"), strict=True)}


def verdict(curves: dict[str, dict[int, float]], epochs: Sequence[int]) -> str:
    """Say which method is nearest to the optimum after some epochs, and how certain that is."""
    best = {n: min(curves, key=lambda name: curves[name][n]) for n in epochs}
    parts = [f"{name} after {n} epochs, {curves[name][n]:.1e} nats above it" for n, name in best.items()]
    return f"Nearest to the optimum: {'; '.join(parts)}. One seed: other orders of the examples end elsewhere."


def plot(folder: pathlib.Path, rows: Sequence[dict], curves: dict[str, dict[int, float]], lowest: float):
    """Write gradient_descent.png: the suboptimality of each method over the gradients it has computed."""
    figure, axes = plots.subplots(figsize=(8, 5))
    colors = plots.colors(curves)
    for row in rows:
        method, points = METHODS[row["method"]], {0: math.log(2) - lowest, **curves[row["method"]]}
        style = {"color": colors[row["method"]], "linestyle": "-" if method.stochastic else (0, (5, 1.5))}
        label = f"{method.description} ({row['steps']:,} steps)"
        axes.plot([*points], [*points.values()], marker="o", markersize=3, label=label, **style)
    axes.set(yscale="log", ylabel="suboptimality, nats")
    axes.set_xlabel(f"gradients computed, in epochs of {rows[0]['batch_size']:,} examples")
    figure.legend(loc="outside lower center", ncols=2)
    plots.save(figure, folder / "gradient_descent.png")


def compare(config: GradientDescentConfig, folder: pathlib.Path) -> Report:
    """Run all methods that are not finished in `folder`, and report them."""
    problem, rows = Problem(config.num_examples, config.num_features, config.seed), []
    for name in METHODS:
        run = folder / f"{name}-seed{config.seed}"
        result = run_once(run, config.seed, lambda run=run, name=name: train_one(run, config, name, problem))
        rows.append({"method": name, "run": run.name, **result})
    curves = {row["method"]: suboptimality(folder / row["run"], config.num_examples) for row in rows}
    plot(folder, rows, curves, problem.lowest_loss)
    last = max(curves["full"])
    epochs = {f"{n} epochs": n for n in sorted({2, max(2, last // 10 * 2), last})}
    columns = {
        "method": "{method}".format_map,
        "description": lambda row: METHODS[row["method"]].description,
        **{"batch size": "{batch_size:,}".format_map, "learning rate": "{learning_rate:.3g}".format_map},
        "steps": "{steps:,}".format_map,
        **{name: lambda row, n=n: f"{curves[row['method']][n]:.1e}" for name, n in epochs.items()},
    }
    return Report(
        "Full-batch and stochastic gradient descent",
        verdict(curves, (2, last)),
        Table.of(rows, columns),
        ("method", "batch size", *epochs),
        rows,
        "Columns of epochs: suboptimality f(w) minus the lowest loss of "
        f"{problem.lowest_loss:.6f}, in nats, after that many. L = {problem.curvature:.4f}.",
        ["![Suboptimality over gradients computed](gradient_descent.png)"],
    )


main = experiment_main("gradient_descent", GradientDescentConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()

"""How do full-batch and stochastic gradient descent compare on a logistic regression with a known optimum?

    f(w) = mean over i of log(1 + exp(x_i w)) - y_i x_i w          f(w_t) - f* <= L |w_0 - w*|^2 / 2 t  at rate 1 / L

    python -m experiments.gradient_descent
    python -m experiments.gradient_descent --smoke                 # tiny sizes, takes seconds

Time: 25 seconds on 2 cores.

The axis is the number of gradients computed: one for each example that a step uses, the "tokens" of the logs. The
optimum is computed by Newton's method in float64; L is the largest curvature. Expected suboptimality f(w) - f*, in
nats: after 2 epochs 0.059 with full batches and 0.005 with small ones, whose noise then keeps it near 0.005, or near
0.0005 at a third of the rate; after 50 epochs 4e-6 with full batches, and 1e-11 with momentum.
"""

import dataclasses
import pathlib
from typing import Annotated

import keras
import matplotlib.pyplot as plt
import numpy as np
import tyro

from experiments.frame import plots, report
from experiments.frame.option_checks import check_options
from experiments.frame.runs import run_config, start_or_resume
from experiments.frame.startup import exit_with_message
from keras_seq import training
from keras_seq.atomic_files import write_json, write_text
from keras_seq.data import ArrayBatches
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries


@dataclasses.dataclass(frozen=True)
class Method:
    """One variant of gradient descent."""

    description: str
    """Description in the report."""
    stochastic: bool
    """Whether a step uses a few examples, instead of all."""
    relative_rate: float
    """Learning rate times L."""
    momentum: float = 0.0
    """Nesterov momentum."""
    decay: bool = False
    """Whether the learning rate decays as 1 / (1 + epochs)."""


METHODS = {
    "full": Method("full batch, rate 1 / L", stochastic=False, relative_rate=1.0),
    "full-momentum": Method("full batch, rate 1 / L, momentum 0.7", stochastic=False, relative_rate=1.0, momentum=0.7),
    "stochastic": Method("small batches, rate 0.1 / L", stochastic=True, relative_rate=0.1),
    "stochastic-slow": Method("small batches, rate 0.03 / L", stochastic=True, relative_rate=0.03),
    "stochastic-decaying": Method(
        "small batches, rate 0.5 / L, decaying", stochastic=True, relative_rate=0.5, decay=True
    ),
}


@dataclasses.dataclass(frozen=True)
class GradientDescentConfig:
    """Compare full-batch and stochastic gradient descent."""

    num_examples: int = 2048
    """Number of examples N, at least 20 per feature: fewer might be separable, and then there is no optimum."""
    num_features: int = 20
    """Number of features D. The scale of the last is 0.4 times that of the first, so that curvatures differ."""
    batch_size: int = 16
    """Batch size of the stochastic methods."""
    epochs: int = 50
    """Number of epochs of each method, N gradients each. An even number."""
    seed: int = 0
    """Random seed of the examples and of their order."""
    log_dir: str = "logs"
    """Folder of the runs: LOG_DIR/gradient_descent/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/gradient_descent/UTC-TIME to resume. Options not given on the command line are read from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""

    def __post_init__(self):
        check_options(self, num_features=1, batch_size=1, epochs=2)
        check_options(self, num_examples=20 * self.num_features)
        if self.epochs % 2:
            raise ValueError(f"--epochs {self.epochs}: expected an even number, since every second epoch is validated.")
        if self.num_examples % self.batch_size:
            raise ValueError(
                f"--batch-size {self.batch_size}: expected a divisor of --num-examples {self.num_examples}."
            )


def smoke_config(config: GradientDescentConfig) -> GradientDescentConfig:
    """Return the config at sizes that take seconds."""
    return dataclasses.replace(config, num_examples=240, num_features=4, batch_size=8, epochs=10)


class Problem:
    """Logistic regression on random examples `x [N, D]`, `y [N]`, with its `optimum` and its largest `curvature` L.

    Args:
        num_examples: Number of examples N.
        num_features: Number of features D.
        seed: Random seed of the examples.

    Raises:
        ValueError: Newton's method does not converge.
    """

    def __init__(self, num_examples: int, num_features: int, seed: int):
        random = np.random.default_rng(seed)
        scales = np.geomspace(1.0, 0.4, num_features)
        self.x = (random.normal(size=(num_examples, num_features)) * scales).astype("float32")
        true_weights = 0.3 * random.normal(size=num_features) / scales
        self.y = (random.random(num_examples) < 1 / (1 + np.exp(-self.x @ true_weights))).astype("float32")
        self.curvature = float(np.linalg.eigvalsh(self.x.T.astype("float64") @ self.x)[-1] / (4 * num_examples))
        self.optimum = self._newton(np.zeros(num_features))

    def loss(self, w) -> float:
        """Compute f(w) in float64, for `w [D]`."""
        z = self.x.astype("float64") @ w
        return float(np.mean(np.logaddexp(0, z) - self.y * z))

    def gradient(self, w) -> np.ndarray:
        """Compute the gradient of f at `w [D]`, `[D]`."""
        return self.x.T.astype("float64") @ (self._probabilities(w) - self.y) / len(self.y)

    def _probabilities(self, w):
        return 1 / (1 + np.exp(-self.x.astype("float64") @ w))

    def _newton(self, w, steps=50):
        for _ in range(steps):
            p = self._probabilities(w)
            hessian = (self.x.T * (p * (1 - p))) @ self.x.astype("float64") / len(self.y)
            w = w - np.linalg.solve(hessian, self.gradient(w))
            if np.linalg.norm(self.gradient(w)) < 1e-12:
                return w
        raise ValueError(
            f"Newton's method found no optimum in {steps} steps: use more --num-examples or another --seed."
        )


def train_one(folder: pathlib.Path, config: GradientDescentConfig, name: str, problem: Problem) -> dict:
    """Train with one method, or resume its run.

    Args:
        folder: Run folder.
        config: Options of the experiment.
        name: Name of the method.
        problem: The problem.

    Returns:
        The contents of the run's result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    method = METHODS[name]
    batch_size = config.batch_size if method.stochastic else config.num_examples
    steps_per_epoch = config.num_examples // batch_size
    rate = method.relative_rate / problem.curvature
    features = keras.Input((config.num_features,), name="features")
    logit = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="logit")(features)
    model = keras.Model(features, logit, name="logistic_regression")
    train = training.TrainConfig(
        "sgd",
        rate,
        log_every=steps_per_epoch,
        validate_every=2 * steps_per_epoch,
        checkpoint_every=10 * steps_per_epoch,
    )
    model.compile(
        optimizer=training.OPTIMIZERS["sgd"](
            keras.optimizers.schedules.InverseTimeDecay(rate, steps_per_epoch, 1.0) if method.decay else rate,
            momentum=method.momentum,
            nesterov=method.momentum > 0,
        ),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        steps_per_execution=train.steps_per_execution,
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    lowest = problem.loss(problem.optimum)

    def validate():
        loss = problem.loss(model.get_weights()[0][:, 0].astype("float64"))
        return Summaries({"val_loss": loss, "suboptimality": loss - lowest})

    resolved_train_config = {**dataclasses.asdict(train), "global_clipnorm": None}
    print(f"\n{folder.name}: {method.description}")
    logger, summaries = training.fit_resumable(
        folder,
        model,
        ArrayBatches((problem.x, problem.y[:, None]), batch_size, config.seed).dataset,
        batch_size,
        config.epochs * steps_per_epoch,
        train,
        validate,
        run_config(config, name, method, resolved_train_config, seed=config.seed),
        folder.name,
    )
    save_model(folder / "model.keras", model)
    result = {
        "learning_rate": rate,
        "batch_size": batch_size,
        "steps": logger.step,
        "train_seconds": logger.seconds,
        "val_loss": summaries.scalars["val_loss"],
        "suboptimality": summaries.scalars["suboptimality"],
    }
    training.write_result(folder, result)
    return result


def curve(run: pathlib.Path, num_examples: int) -> list[tuple[float, float]]:
    """Return the epochs and the suboptimality after them.

    Args:
        run: Run folder.
        num_examples: Number of examples N, the gradients of an epoch.
    """
    lines = training.read_metrics(run, "validation")
    return [(line["tokens"] / num_examples, line["suboptimality"]) for line in lines]


def table(folder: pathlib.Path, config: GradientDescentConfig, rows) -> str:
    """Format one line for each method, with its suboptimality after some epochs.

    Args:
        folder: Folder of the runs.
        config: Options of the experiment.
        rows: One dict per method.
    """
    columns = sorted({2, max(2, config.epochs // 10 * 2), config.epochs})
    header = ["method", "description", "batch size", "learning rate", "steps"]
    lines = [[*header, *(f"{epochs} epochs" for epochs in columns)]]
    for row in rows:
        suboptimality = dict(curve(folder / row["run"], config.num_examples))
        description = METHODS[row["method"]].description
        cells = [row["method"], description, f"{row['batch_size']:,}", f"{row['learning_rate']:.3g}"]
        lines.append([*cells, f"{row['steps']:,}", *(f"{suboptimality[epochs]:.1e}" for epochs in columns)])
    return report.markdown_table(lines)


def plot(folder: pathlib.Path, config: GradientDescentConfig, problem: Problem, rows):
    """Plot gradient_descent.png: the suboptimality of each method over the gradients it has computed.

    Args:
        folder: Folder of the runs and of the plot.
        config: Options of the experiment.
        problem: The problem.
        rows: One dict per method.
    """
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    initial = problem.loss(np.zeros(config.num_features)) - problem.loss(problem.optimum)
    for number, row in enumerate(rows):
        method = METHODS[row["method"]]
        points = [(0.0, initial), *curve(folder / row["run"], config.num_examples)]
        style = {"linestyle": "-" if method.stochastic else (0, (5, 1.5)), "linewidth": 1.7}
        label = f"{method.description} ({row['steps']:,} steps)"
        axes.plot(*zip(*points, strict=True), color=f"C{number}", marker="o", markersize=3, label=label, **style)
    axes.set_yscale("log")
    axes.set_xlabel(f"gradients computed, in epochs of {config.num_examples:,} examples")
    axes.set_ylabel("suboptimality, nats")
    axes.legend(frameon=False, loc="lower left", fontsize=9)
    plots.style_axes(axes)
    plots.save(figure, folder / "gradient_descent.png")


def compare(config: GradientDescentConfig, folder: pathlib.Path) -> str:
    """Run all methods that are not finished in a folder, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the runs.

    Returns:
        The table with its notes.

    Raises:
        ValueError: Newton's method does not converge.
    """
    problem = Problem(config.num_examples, config.num_features, config.seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in METHODS:
        run = folder / f"{name}-seed{config.seed}"
        result = training.load_result(run) or train_one(run, config, name, problem)
        rows.append({"method": name, "run": run.name, **result})
    write_json(folder / "gradient_descent.json", rows)
    lowest = problem.loss(problem.optimum)
    notes = (
        f"Columns of epochs: suboptimality in nats, f(w) minus the lowest loss of {lowest:.6f}, after that number of "
        f"epochs. L = {problem.curvature:.4f}."
    )
    text = f"{table(folder, config, rows)}\n\n{notes}"
    image = "![Suboptimality over gradients computed](gradient_descent.png)"
    write_text(folder / "gradient_descent.md", f"# Full-batch and stochastic gradient descent\n\n{text}\n\n{image}\n")
    plot(folder, config, problem, rows)
    return text


@exit_with_message("experiments.gradient_descent")
def main(arguments=None):
    """Run the command line."""
    script = "gradient_descent"
    with start_or_resume(GradientDescentConfig, script, __doc__, arguments, smoke_config) as (config, folder):
        text = compare(config, folder)
        files = f"Plot:   {folder / 'gradient_descent.png'}\nReport: {folder / 'gradient_descent.md'}"
        print(f"\n{text}\n\n{files}\n{report.tensorboard_hint(folder)}")


if __name__ == "__main__":
    main()

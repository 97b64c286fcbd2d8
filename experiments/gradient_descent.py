"""Full-batch against stochastic gradient descent, on a logistic regression whose optimum is known.

    f(w) = mean over i of log(1 + exp(x_i w)) - y_i x_i w          f(w_t) - f* <= L |w_0 - w*|^2 / 2 t  at rate 1 / L

    python -m experiments.gradient_descent
    python -m experiments.gradient_descent --smoke                 # seconds, tiny: does everything work?

Losses stand over gradients computed: one for each example that a step sees, the "tokens" of the logs. The optimum is
found by Newton's method in float64; L is the largest curvature. About 25 seconds on 2 cores. To expect, in nats above
the optimum: after 2 passes over the examples 0.059 by full batches and 0.005 by small ones, whose noise then keeps them
near 0.005, or near 0.0005 at a third of the rate; full batches are at 4e-6 after 50, with momentum at 1e-11.
"""

import dataclasses
import pathlib
from typing import Annotated

import keras
import matplotlib.pyplot as plt
import numpy as np
import tyro

from experiments import pictures, report
from experiments.options import check_options
from experiments.runs import begin, config
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.atomic_files import write_json, write_text
from keras_seq.data import ArrayBatches
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries


@dataclasses.dataclass(frozen=True)
class Method:
    """One way of going down."""

    what: str
    """In words."""
    stochastic: bool
    """Whether a step sees a few examples, or all."""
    rate: float
    """The learning rate, times L."""
    momentum: float = 0.0
    """Nesterov's."""
    decaying: bool = False
    """Whether the rate falls as 1 / (1 + passes over the data)."""


METHODS = {
    "full": Method("all examples, rate 1 / L", stochastic=False, rate=1.0),
    "full-momentum": Method("the same with momentum 0.7", stochastic=False, rate=1.0, momentum=0.7),
    "stochastic": Method("few examples, rate 0.1 / L", stochastic=True, rate=0.1),
    "stochastic-slow": Method("few examples, rate 0.03 / L", stochastic=True, rate=0.03),
    "stochastic-decaying": Method("few examples, rate 0.5 / L, falling", stochastic=True, rate=0.5, decaying=True),
}


@dataclasses.dataclass(frozen=True)
class GradientDescent:
    """Compare full-batch and stochastic gradient descent."""

    examples: int = 2048
    """N, at least 20 for each feature: fewer might be told apart without error, and then there is no optimum."""
    features: int = 20
    """Of an example; the last varies 0.4 times as much as the first, so that f is not curved alike everywhere."""
    batch_size: int = 16
    """Examples in a stochastic step."""
    passes: int = 50
    """Gradients of each method, in times N: an even number."""
    seed: int = 0
    """Of the examples and of their order."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/gradient_descent/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/gradient_descent/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""

    def __post_init__(self):
        check_options(self, features=1, batch_size=1, passes=2)
        check_options(self, examples=20 * self.features)
        if self.passes % 2:
            raise ValueError(f"--passes {self.passes}: expected an even number, for every second one is looked at.")
        if self.examples % self.batch_size:
            raise ValueError(f"--batch-size {self.batch_size}: expected a divisor of the --examples {self.examples}.")


def tiny(settings: GradientDescent) -> GradientDescent:
    """The same at sizes that take seconds."""
    return dataclasses.replace(settings, examples=240, features=4, batch_size=8, passes=10)


class Problem:
    """The examples `x [N, D]`, `y [N]`, the loss in float64, its `optimum` and its largest `curvature` L."""

    def __init__(self, examples, features, seed):
        random = np.random.default_rng(seed)
        scales = np.geomspace(1.0, 0.4, features)
        self.x = (random.normal(size=(examples, features)) * scales).astype("float32")
        truth = 0.3 * random.normal(size=features) / scales
        self.y = (random.random(examples) < 1 / (1 + np.exp(-self.x @ truth))).astype("float32")
        self.curvature = float(np.linalg.eigvalsh(self.x.T.astype("float64") @ self.x)[-1] / (4 * examples))
        self.optimum = self._newton(np.zeros(features))

    def loss(self, w) -> float:
        """f(w), for `w [D]`."""
        z = self.x.astype("float64") @ w
        return float(np.mean(np.logaddexp(0, z) - self.y * z))

    def gradient(self, w) -> np.ndarray:
        """Its gradient `[D]`."""
        return self.x.T.astype("float64") @ (self._positive(w) - self.y) / len(self.y)

    def _positive(self, w):
        return 1 / (1 + np.exp(-self.x.astype("float64") @ w))

    def _newton(self, w, steps=50):
        for _ in range(steps):
            p = self._positive(w)
            hessian = (self.x.T * (p * (1 - p))) @ self.x.astype("float64") / len(self.y)
            w = w - np.linalg.solve(hessian, self.gradient(w))
            if np.linalg.norm(self.gradient(w)) < 1e-12:
                return w
        raise ValueError(f"Newton's method found no optimum in {steps} steps: take more --examples or another --seed.")


def train_one(folder, settings: GradientDescent, name, problem: Problem) -> dict:
    """One run: one method. Returns what result.json says."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    method = METHODS[name]
    batch_size = settings.batch_size if method.stochastic else settings.examples
    per_pass = settings.examples // batch_size
    rate = method.rate / problem.curvature
    features = keras.Input((settings.features,), name="features")
    logit = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="logit")(features)
    model = keras.Model(features, logit, name="logistic_regression")
    train = training.TrainConfig(
        "sgd", rate, log_every=per_pass, validate_every=2 * per_pass, checkpoint_every=10 * per_pass
    )
    model.compile(
        optimizer=training.OPTIMIZERS["sgd"](
            keras.optimizers.schedules.InverseTimeDecay(rate, per_pass, 1.0) if method.decaying else rate,
            momentum=method.momentum,
            nesterov=method.momentum > 0,
        ),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        steps_per_execution=train.steps_per_execution,
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    lowest = problem.loss(problem.optimum)

    def diagnostic():
        loss = problem.loss(model.get_weights()[0][:, 0].astype("float64"))
        return Summaries({"val_loss": loss, "suboptimality": loss - lowest})

    used = {**dataclasses.asdict(train), "global_clipnorm": None}
    print(f"\n{folder.name}: {METHODS[name].what}")
    record, summaries = training.fit_resumable(
        folder,
        model,
        ArrayBatches((problem.x, problem.y[:, None]), batch_size, settings.seed).dataset,
        batch_size,
        settings.passes * per_pass,
        train,
        diagnostic,
        config(settings, name, method, used, seed=settings.seed),
        folder.name,
    )
    save_model(folder / "model.keras", model)
    result = {
        "learning_rate": rate,
        "batch_size": batch_size,
        "steps": record.step,
        "train_seconds": record.seconds,
        "nats": summaries.scalars["val_loss"],
        "suboptimality": summaries.scalars["suboptimality"],
    }
    training.write_result(folder, result)
    return result


def curve(run: pathlib.Path, examples) -> list[tuple[float, float]]:
    """Passes over the data, and how far the loss stood above the optimum then."""
    lines = training.read_metrics(run / "metrics.jsonl")
    return [(line["tokens"] / examples, line["suboptimality"]) for line in lines if line["split"] == "validation"]


def table(folder, settings: GradientDescent, rows) -> str:
    """A line for each method, as a Markdown table that reads as plain text too."""
    diagnostics = sorted({2, max(2, settings.passes // 10 * 2), settings.passes})
    lines = [["model", "what", "batch", "rate", "steps", *(f"{passes} passes" for passes in diagnostics)]]
    for row in rows:
        above = dict(curve(folder / row["run"], settings.examples))
        cells = [row["model"], METHODS[row["model"]].what, f"{row['batch_size']:,}", f"{row['learning_rate']:.3g}"]
        lines.append([*cells, f"{row['steps']:,}", *(f"{above[passes]:.1e}" for passes in diagnostics)])
    return report.aligned(lines)


def draw(folder, settings: GradientDescent, problem: Problem, rows):
    """gradient_descent.png: how far each method is above the optimum, over the gradients it has computed."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    start = problem.loss(np.zeros(settings.features)) - problem.loss(problem.optimum)
    for number, row in enumerate(rows):
        points = [(0.0, start), *curve(folder / row["run"], settings.examples)]
        style = {"linestyle": "-" if METHODS[row["model"]].stochastic else (0, (5, 1.5)), "linewidth": 1.7}
        label = f"{METHODS[row['model']].what} ({row['steps']:,} steps)"
        axes.plot(*zip(*points, strict=True), color=f"C{number}", marker="o", markersize=3, label=label, **style)
    axes.set_yscale("log")
    axes.set_xlabel(f"gradients computed, in passes over the {settings.examples:,} examples")
    axes.set_ylabel("nats above the optimum")
    axes.legend(frameon=False, loc="lower left", fontsize=9)
    pictures.plain(axes)
    pictures.save(figure, folder / "gradient_descent.png")


def compare(settings: GradientDescent, folder: pathlib.Path) -> str:
    """Runs all methods that have not yet run in `folder`, and writes the comparison. Returns the table."""
    problem = Problem(settings.examples, settings.features, settings.seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in METHODS:
        run = folder / f"{name}-seed{settings.seed}"
        result = training.load_result(run) or train_one(run, settings, name, problem)
        rows.append({"model": name, "run": run.name, **result})
    write_json(folder / "gradient_descent.json", rows)
    lowest = problem.loss(problem.optimum)
    notes = f"Nats above the optimum of {lowest:.6f}, after so many passes over the data. L = {problem.curvature:.4f}."
    text = f"{table(folder, settings, rows)}\n\n{notes}"
    picture = "![Nats above the optimum over gradients computed](gradient_descent.png)"
    write_text(folder / "gradient_descent.md", f"# Full-batch and stochastic\n\n{text}\n\n{picture}\n")
    draw(folder, settings, problem, rows)
    return text


@one_sentence("experiments.gradient_descent")
def main(arguments=None):
    """The command line."""
    with begin(GradientDescent, "gradient_descent", __doc__, arguments, tiny) as (settings, folder):
        told = compare(settings, folder)
        files = f"Curves:  {folder / 'gradient_descent.png'}\nReport:  {folder / 'gradient_descent.md'}"
        print(f"\n{told}\n\n{files}\n{report.to_look(folder)}")


if __name__ == "__main__":
    main()

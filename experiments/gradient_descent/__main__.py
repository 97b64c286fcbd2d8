"""How do full-batch and stochastic gradient descent compare on a logistic regression with a known optimum?

    f(w) = mean over i of log(1 + exp(x_i w)) - y_i x_i w          f(w_t) - f* <= L |w_0 - w*|^2 / 2 t  at rate 1 / L

    python -m experiments.gradient_descent
    python -m experiments.gradient_descent --smoke                 # tiny sizes, takes seconds

Time: 25 seconds on 2 cores.

The axis is the number of gradients computed: one for each example that a step uses, the "tokens" of the logs. L is the
largest curvature. Expected: small batches are ahead after 2 epochs, full batches after 50 (docs/experiments.md).
"""

import dataclasses
import pathlib

import keras

from experiments.frame.experiment import experiment_main, run_config, run_once
from experiments.frame.report import Report
from experiments.gradient_descent.problem import Problem
from experiments.gradient_descent.report import gradient_descent_report
from experiments.gradient_descent.settings import METHODS, SMOKE, GradientDescentConfig
from keras_seq import training
from keras_seq.data import ArrayBatches
from keras_seq.tracking import Summaries


def train_one(run: pathlib.Path, config: GradientDescentConfig, name: str, problem: Problem) -> dict:
    """Train with one method, from zero weights."""
    method = METHODS[name]
    batch_size = config.batch_size if method.stochastic else config.num_examples
    epoch = config.num_examples // batch_size  # in steps
    steps, rate = config.epochs * epoch, method.relative_rate / problem.curvature
    logit = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="logit")
    model = keras.Sequential([keras.Input((config.num_features,)), logit], name="logistic_regression")
    intervals = {"log_every": epoch, "validate_every": 2 * epoch, "checkpoint_every": 10 * epoch}
    train = training.TrainConfig(**intervals)
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


def compare(config: GradientDescentConfig, folder: pathlib.Path) -> Report:
    """Run all methods that are not finished in `folder`, and report them."""
    problem = Problem(config.num_examples, config.num_features, config.seed)
    rows = []
    for name in METHODS:
        run = folder / f"{name}-seed{config.seed}"
        result = run_once(run, config.seed, lambda run=run, name=name: train_one(run, config, name, problem))
        rows.append({"method": name, "run": run.name, **result})
    return gradient_descent_report(folder, rows)


main = experiment_main("gradient_descent", GradientDescentConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()

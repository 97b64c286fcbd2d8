"""Plan the training budget of each model of a comparison, so that one quantity is equal for all: `--match`.

    tokens       every model trains on --tokens                                                      (the default)
    parameters   the same, with widths scaled so that parameter counts are closest to the first model's
    flops        the first model trains on --tokens, the others on as many as need the same training FLOPs
    seconds      the same for the time of the training steps, measured before the runs

The plan is written to plan.json before the first run, so that a resumed comparison keeps it; with more --tokens it is
made again.
"""

import dataclasses
import pathlib
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import keras

from experiments.compare.settings import CompareConfig
from experiments.frame.tables import Table, tera
from keras_seq import checks, training
from keras_seq.atomic_files import set_aside
from keras_seq.models.flops import flops_per_token
from keras_seq.models.match_parameters import match_parameter_count
from keras_seq.training import checksummed_json
from keras_seq.training.checkpoints import CorruptCheckpointError

NUM_TIMED_EXECUTIONS = 7  # after the one that compiles
WIDTHS = {"embedding_dim": "embedding", "units": "units", "feed_forward_dim": "feed-forward", "num_heads": "heads"}


@dataclasses.dataclass(frozen=True)
class Budget:
    """Training budget of one model; FLOPs are those of training, seconds were measured before the runs or are None."""

    name: str
    model_config: Any
    steps: int
    parameters: int
    flops_per_token: int
    learning_rate: float
    seconds_per_step: float | None = None


def load_or_plan(
    path: pathlib.Path, config: CompareConfig, vocabulary_size: int, make_windows: Callable
) -> dict[str, Budget]:
    """Load plan.json if it has as many tokens as the config; otherwise plan the budgets and write it.

    Args:
        path: Path of plan.json.
        config: Config of the comparison.
        vocabulary_size: V.
        make_windows: Function from a kind of training windows ("stateful" or "random") to the windows.

    Raises:
        ValueError: The plan is of another comparison; or it is corrupt or missing and `match` is "seconds", since
            times cannot be measured again.
    """
    try:
        budgets = read_plan(path, config)
        if budgets[config.models[0]].steps == config.steps:
            return budgets  # otherwise --tokens was raised
    except (CorruptCheckpointError, FileNotFoundError) as error:
        problem = str(error) if isinstance(error, CorruptCheckpointError) else f"{path} is missing"
        was_planned = path.exists() or any(path.parent.glob("*/config.json"))
        if config.match == "seconds" and was_planned:
            raise ValueError(f"{problem}, and the times in it cannot be measured again: start a new run.") from error
        if was_planned:
            warnings.warn(f"{problem}; it is written again{set_aside(path)}.", stacklevel=2)
    budgets = plan(config, vocabulary_size, make_windows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_plan(path, config, budgets)
    return budgets


def plan(config: CompareConfig, vocabulary_size: int, make_windows: Callable) -> dict[str, Budget]:
    """Plan the budget of each model; the arguments are those of `load_or_plan`."""
    budgets, target = {}, None
    if config.match == "seconds":
        print(f"Timing {1 + NUM_TIMED_EXECUTIONS} x {config.train.steps_per_execution} steps of each model ...")
    for name in config.models:
        model_config = config.model(name)
        if config.match == "parameters" and target is not None:
            model_config = match_parameter_count(model_config, vocabulary_size, target)
        keras.backend.clear_session()
        model = model_config.build_model(vocabulary_size)
        target = target or model.count_params()
        flops = flops_per_token(model, config.sequence_length, training=True)
        seconds = None
        if config.match == "seconds":
            seconds = _seconds_per_step(config, model_config, vocabulary_size, make_windows)
        rate = config.train.peak_learning_rate(model)
        budgets[name] = Budget(name, model_config, config.steps, model.count_params(), flops, rate, seconds)
    first = budgets[config.models[0]]
    cost = {"flops": lambda b: b.flops_per_token, "seconds": lambda b: b.seconds_per_step}.get(config.match)
    if cost is not None:
        for name, budget in budgets.items():
            steps = max(1, round(first.steps * cost(first) / cost(budget)))
            budgets[name] = dataclasses.replace(budget, steps=steps)
    return budgets


class _StepTimer(keras.callbacks.Callback):
    """Measure the seconds of every execution of the train function."""

    def on_train_begin(self, logs=None):
        self.seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self.start_time = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        int(self.model.optimizer.iterations)  # waits until the device has finished
        self.seconds.append(time.perf_counter() - self.start_time)


def _seconds_per_step(config, model_config, vocabulary_size, make_windows):
    """Measure the median time of a training step, without the execution that compiles, on a model of its own."""
    keras.utils.set_random_seed(0)
    model = model_config.build_model(vocabulary_size, dtype=config.train.dtype_policy)
    windows = make_windows(config.windows_for(model))
    training_model, dataset_fn = training.carry_state(model, windows)
    training.compile_model(training_model, config.train, config.steps, tokens_per_step=windows.tokens_per_step)
    steps_per_execution, timer = config.train.steps_per_execution, _StepTimer()
    data = dataset_fn(0, steps_per_execution * (1 + NUM_TIMED_EXECUTIONS))
    training_model.fit(data, shuffle=False, verbose=0, callbacks=[timer])
    return statistics.median(timer.seconds[1:]) / steps_per_execution


def train_tokens(config: CompareConfig, budget: Budget) -> int:
    """Return the number of tokens that a model is trained on."""
    return budget.steps * config.batch_size * config.sequence_length


def table(config: CompareConfig, budgets: dict[str, Budget]) -> Table:
    """Return a table of the budgets, with the matched column marked."""
    columns = {
        "model": lambda b: b.name,
        "width": lambda b: format_widths(b.model_config),
        "parameters": lambda b: f"{b.parameters:,}",
        "train tokens": lambda b: f"{train_tokens(config, b):,}",
        "train TFLOP": lambda b: tera(b.flops_per_token * train_tokens(config, b)),
    }
    if config.match == "seconds":
        columns["step seconds"] = lambda b: f"{b.seconds_per_step * b.steps:.1f}"
    matched = {"parameters": "parameters", "tokens": "train tokens", "flops": "train TFLOP", "seconds": "step seconds"}
    header = {name: f"{name} (matched)" if name == matched[config.match] else name for name in columns}
    return Table.of([*budgets.values()], {header[name]: cell for name, cell in columns.items()})


def format_widths(model_config: Any) -> str:
    """Format the widths of a model, such as "embedding 64, units 408"."""
    return ", ".join(
        f"{label} {getattr(model_config, key)}" for key, label in WIDTHS.items() if hasattr(model_config, key)
    )


def write_plan(path: pathlib.Path, config: CompareConfig, budgets: dict[str, Budget]):
    """Write plan.json."""
    runs = [{**dataclasses.asdict(b), "model_config": dataclasses.asdict(b.model_config)} for b in budgets.values()]
    checksummed_json.write(path, {"match": config.match, "runs": runs})


def read_plan(path: pathlib.Path, config: CompareConfig) -> dict[str, Budget]:
    """Read plan.json.

    Raises:
        CorruptCheckpointError: The file is corrupt.
        ValueError: The plan is of another comparison.
    """
    runs = checksummed_json.read(path).get("runs")
    try:
        classes = {run["name"]: type(config.model(run["name"])) for run in runs if run["name"] in config.models}
        budgets = {
            run["name"]: Budget(**{**run, "model_config": classes[run["name"]](**run["model_config"])}) for run in runs
        }
        steps = [checks.positive_integer("steps", budget.steps) for budget in budgets.values()]
        is_valid = [*budgets] == [*config.models] and len(steps) == len(runs)
    except (KeyError, TypeError, AttributeError, ValueError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{path} does not hold the plan of this comparison: start a new run.")
    return budgets

"""Plan a comparison: the training budget of each model, one quantity of which is equal for all, and its learning rate.

--match tokens       every model trains on --tokens                                              (the default)
--match parameters   the same, with widths scaled so that parameter counts are closest to the first model's
--match flops        the first model trains on --tokens, the others on as many as need the same training FLOPs
--match seconds      the same for the time of the training steps, measured before the runs and kept in seconds.json

The rates of `--sweep learning-rate` are in sweep.py.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from experiments.common.jobs import in_turn
from experiments.compare.settings import CompareConfig
from keras_seq import checks
from keras_seq.models.config import match_parameter_count, shapes_only
from keras_seq.models.counts import flops_per_token
from keras_seq.reports.tables import Table, tera
from keras_seq.runs.train import seconds_per_step
from keras_seq.training import run_folder
from keras_seq.training.checkpoints import CorruptCheckpointError

WIDTHS = {"embedding_dim": "embedding", "units": "units", "feed_forward_dim": "feed-forward", "num_heads": "heads"}
MATCHED_COLUMNS = {
    "parameters": "parameters",
    "tokens": "train tokens",
    "flops": "train TFLOP",
    "seconds": "step seconds",
}


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


def plan(
    config: CompareConfig, folder: pathlib.Path, vocabulary_size: int, make_windows: Callable
) -> dict[str, Budget]:
    """Return the `Budget` of each model by name; `make_windows` maps a kind of training windows to the windows."""
    budgets, target = {}, None
    for name in config.models:
        model_config = config.model(name)
        if config.match == "parameters" and target is not None:
            model_config = match_parameter_count(model_config, vocabulary_size, target)
        with shapes_only():
            model = model_config.build_model(vocabulary_size)
        target = target or model.count_params()
        flops = flops_per_token(model, config.sequence_length, training=True)
        rate = config.train.peak_learning_rate(model)
        budgets[name] = Budget(name, model_config, config.steps, model.count_params(), flops, rate)
    if config.match == "seconds":
        with in_turn(folder / "seconds"):
            times = step_seconds(config, folder / "seconds.json", budgets, vocabulary_size, make_windows)
        budgets = {name: dataclasses.replace(b, seconds_per_step=times[name]) for name, b in budgets.items()}
    first = budgets[config.models[0]]
    cost = {"flops": lambda b: b.flops_per_token, "seconds": lambda b: b.seconds_per_step}.get(config.match)
    if cost is not None:
        for name, budget in budgets.items():
            steps = max(1, round(first.steps * cost(first) / cost(budget)))
            budgets[name] = dataclasses.replace(budget, steps=steps)
    return budgets


def step_seconds(
    config: CompareConfig, path: pathlib.Path, budgets: dict[str, Budget], vocabulary_size: int, make_windows: Callable
) -> dict[str, float]:
    """Return the seconds of a training step of each model: those in the file, or else measured and written to it."""
    try:
        times = run_folder.read_checksummed(path)
        return {name: checks.positive_number(name, times[name]) for name in budgets}
    except (CorruptCheckpointError, FileNotFoundError, KeyError, ValueError) as error:
        if path.exists() or any(path.parent.glob("*/config.json")):
            problem = "is missing" if isinstance(error, FileNotFoundError) else "does not hold the times of the models"
            raise ValueError(f"{path} {problem}, and they cannot be measured again: start a new run.") from error
    print("Timing some steps of each model ...")
    times = {
        name: _seconds_per_step(config, b.model_config, vocabulary_size, make_windows) for name, b in budgets.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    run_folder.write_checksummed(path, times)
    return times


def _seconds_per_step(config, model_config, vocabulary_size, make_windows):
    """Measure the median time of a training step, without the execution that compiles, on a model of its own."""
    keras.utils.set_random_seed(0)
    model = model_config.build_model(vocabulary_size, dtype=config.train.dtype_policy)
    windows = make_windows(config.windows_for(model))
    return seconds_per_step(model, windows, config.train, config.steps)


def train_tokens(config: CompareConfig, budget: Budget) -> int:
    """Return the number of tokens that a model is trained on."""
    return budget.steps * config.batch_size * config.sequence_length


def budget_table(config: CompareConfig, budgets: dict[str, Budget]) -> Table:
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
    matched = MATCHED_COLUMNS[config.match]
    header = {name: f"{name} (matched)" if name == matched else name for name in columns}
    return Table.of([*budgets.values()], {header[name]: cell for name, cell in columns.items()})


def format_widths(model_config: Any) -> str:
    """Format the widths of a model, such as "embedding 64, units 408"."""
    return ", ".join(
        f"{label} {getattr(model_config, key)}" for key, label in WIDTHS.items() if hasattr(model_config, key)
    )

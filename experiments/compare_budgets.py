"""What each model of a comparison is trained with, so that one quantity is the same for all: `--match`.

    tokens       every model reads --tokens                                                          (the default)
    parameters   and every model is as wide as makes it come closest to the first one's number of parameters
    flops        the first model reads --tokens; the others as many as cost the same training FLOPs
    seconds      the same for the seconds that steps take, measured before the runs

The plan is in plan.json before the first run begins, so that a comparison that is gone on with keeps it; more
tokens make another.
"""

import dataclasses
import statistics
import time
import warnings

import keras

from experiments.compare_settings import Compare
from experiments.compare_widths import matched
from experiments.report import aligned, tera
from keras_seq import checks, training
from keras_seq.atomic_files import set_aside
from keras_seq.models.flops import flops_per_token
from keras_seq.training import checksummed_json
from keras_seq.training.checkpoints import CorruptCheckpointError
from keras_seq.training.language_model import stateful_training_model

EXECUTIONS = 7  # timed, after the one that compiles
WIDTHS = {"embedding_dim": "embedding", "units": "units", "feed_forward_dim": "feed-forward", "num_heads": "heads"}


@dataclasses.dataclass(frozen=True)
class Budget:
    """One model as it is trained.

    Attributes:
        name: of the model.
        definition: the dataclass that it is built from.
        steps: batches that it is trained on.
        parameters: their number.
        flops_per_token: of training.
        learning_rate: the highest one.
        seconds_per_step: as measured before the runs; None where nothing was to be measured.
    """

    name: str
    definition: object
    steps: int
    parameters: int
    flops_per_token: int
    learning_rate: float
    seconds_per_step: float | None = None


def kept_or_planned(path, settings: Compare, vocabulary_size, windows) -> dict[str, Budget]:
    """The plan that was kept, if there is one of as many tokens; else one that is kept from now on.

    Raises:
        ValueError: it is none of this comparison; or damaged or gone, and made of times that are not measured twice
            alike.
    """
    try:
        kept = read(path, settings)
        if kept[settings.models[0]].steps == settings.steps:
            return kept  # otherwise the comparison became longer
    except (CorruptCheckpointError, FileNotFoundError) as error:
        fault = str(error) if isinstance(error, CorruptCheckpointError) else f"{path} is gone"
        begun = any(path.parent.glob("*/config.json"))
        if settings.match == "seconds" and (begun or path.exists()):
            raise ValueError(f"{fault}, and the times in it cannot be measured again: begin anew.") from error
        if begun or path.exists():
            warnings.warn(f"{fault}; it is written again{set_aside(path)}.", stacklevel=2)
    budgets = plan(settings, vocabulary_size, windows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, settings, budgets)
    return budgets


def plan(settings: Compare, vocabulary_size, windows) -> dict[str, Budget]:
    """The budget of every model, by its name.

    Args:
        settings: what the comparison was told.
        vocabulary_size: V.
        windows: a function from the kind of training batches ("lanes" or "crops") to them.
    """
    found, target = {}, None
    if settings.match == "seconds":
        print(f"Timing {1 + EXECUTIONS} x {settings.train.steps_per_execution} steps of each model ...")
    for name in settings.models:
        definition = settings.model(name)
        if settings.match == "parameters" and target is not None:
            definition = matched(definition, vocabulary_size, target)
        keras.backend.clear_session()
        model = definition.build_model(vocabulary_size)
        target = target or model.count_params()
        flops = flops_per_token(model, settings.context, training=True)
        seconds = None
        if settings.match == "seconds":
            seconds = _seconds_per_step(settings, definition, vocabulary_size, windows)
        rate = settings.train.peak_learning_rate(model)
        found[name] = Budget(name, definition, settings.steps, model.count_params(), flops, rate, seconds)
    first = found[settings.models[0]]
    cost = {"flops": lambda b: b.flops_per_token, "seconds": lambda b: b.seconds_per_step}.get(settings.match)
    if cost is not None:
        for name, budget in found.items():
            steps = max(1, round(first.steps * cost(first) / cost(budget)))
            found[name] = dataclasses.replace(budget, steps=steps)
    return found


class _Clock(keras.callbacks.Callback):
    """The seconds of every execution."""

    def on_train_begin(self, logs=None):
        self.seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self.begun = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        int(self.model.optimizer.iterations)  # waits for what a device still computes
        self.seconds.append(time.perf_counter() - self.begun)


def _seconds_per_step(settings, definition, vocabulary_size, windows):
    """The median over a few executions of real training steps, after one that compiles; the model is thrown away."""
    keras.utils.set_random_seed(0)
    model = definition.build_model(vocabulary_size, dtype=settings.train.dtype_policy)
    batches = windows(settings.windows_for(model))
    carry = settings.carries(model)
    training_model = stateful_training_model(model, batches.batch_size, batches.sequence_length) if carry else model
    at_once = batches.batch_size * batches.sequence_length
    training.compile_model(training_model, settings.train, settings.steps, tokens_per_step=at_once)
    together, clock = settings.train.steps_per_execution, _Clock()
    data = (batches.stateful_dataset if carry else batches.dataset)(0, together * (1 + EXECUTIONS))
    training_model.fit(data, shuffle=False, verbose=0, callbacks=[clock])
    return statistics.median(clock.seconds[1:]) / together


def tokens(settings: Compare, budget: Budget) -> int:
    """Those that a model is trained on."""
    return budget.steps * settings.batch_size * settings.context


def table(settings: Compare, budgets: dict[str, Budget]) -> str:
    """What each model gets; the matched column is marked."""
    timed = settings.match == "seconds"
    lines = [["model", "width", "parameters", "tokens", "training TFLOP", *(["seconds, steps alone"] if timed else [])]]
    for name, budget in budgets.items():
        count = tokens(settings, budget)
        cells = [name, width(budget.definition), f"{budget.parameters:,}", f"{count:,}"]
        cells.append(tera(budget.flops_per_token * count))
        lines.append([*cells, *([f"{budget.seconds_per_step * budget.steps:.1f}"] if timed else [])])
    marked = {"parameters": 2, "tokens": 3, "flops": 4, "seconds": 5}[settings.match]
    lines[0][marked] += " (matched)"
    return aligned(lines)


def width(definition) -> str:
    """The widths of a model in words."""
    return ", ".join(f"{word} {getattr(definition, key)}" for key, word in WIDTHS.items() if hasattr(definition, key))


def write(path, settings: Compare, budgets: dict[str, Budget]):
    """Keeps the plan."""
    runs = [{**dataclasses.asdict(b), "definition": dataclasses.asdict(b.definition)} for b in budgets.values()]
    checksummed_json.write(path, {"match": settings.match, "runs": runs})


def read(path, settings: Compare) -> dict[str, Budget]:
    """The plan that was kept.

    Raises:
        CorruptCheckpointError: the file is corrupt.
        ValueError: it is none of this comparison.
    """
    runs = checksummed_json.read(path).get("runs")
    try:
        kinds = {run["name"]: type(settings.model(run["name"])) for run in runs if run["name"] in settings.models}
        found = {run["name"]: Budget(**{**run, "definition": kinds[run["name"]](**run["definition"])}) for run in runs}
        steps = [checks.positive_integer("steps", budget.steps) for budget in found.values()]
        fits = [*found] == [*settings.models] and len(steps) == len(runs)
    except (KeyError, TypeError, AttributeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"{path} holds no plan of this comparison: begin anew.")
    return found

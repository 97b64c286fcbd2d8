"""Settings of `experiments.recall`."""

import dataclasses
from typing import Any, Literal

from experiments.common.options import LogDir, Resume, Smoke, check_options, check_unique
from keras_seq import training
from keras_seq.data.synthetic import RECALL_TASKS, RecallTask
from keras_seq.models import LANGUAGE_MODELS, MODELS
from keras_seq.models.config import match_parameter_count
from keras_seq.models.registry import sized, tiny_config

PARAMETERS, VOCABULARY_SIZE = 100_000, 65  # of every model, and the ids it would have
SMOKE_SIZES = {"num_layers": 1, "feed_forward_dim": 32}


@dataclasses.dataclass(frozen=True)
class RecallConfig:
    """Train models of equal size on tasks of memory."""

    tasks: tuple[Literal[tuple(RECALL_TASKS)], ...] = tuple(RECALL_TASKS)
    """Tasks, each of which every model is trained on by itself."""
    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "transformer", "mamba")
    """Models to train, all of some 100,000 parameters and two layers (rnn, gru, lstm: one)."""
    num_seeds: int = 1
    """Number of runs of each model on each task, with the random seeds 0, 1, ..."""
    max_length: int = 16
    """Maximum length of the training rows, before the queries. Tests go up to twice this length."""
    max_items: int = 8
    """Maximum number of pairs or letters to recall in training; tests go up to twice as many that fit."""
    alphabet_size: int = 32
    """Number of letters, or of keys and of values; in parity there are two."""
    steps: int = 800
    """Training steps of each run."""
    batch_size: int = 64
    """Rows of a batch."""
    test_rows: int = 500
    """Rows of each length and number of items in the final test."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(validate_every=200, checkpoint_every=400)
    )

    def __post_init__(self):
        least = {"num_seeds": 1, "max_length": 2, "max_items": 1, "alphabet_size": 2, "steps": 1}
        check_options(self, **least, batch_size=1, test_rows=1)
        check_unique("--tasks", self.tasks)
        check_unique("--models", self.models)
        if 2 * self.max_items > self.max_length:
            limit = self.max_length // 2
            raise ValueError(f"--max-items {self.max_items}: expected at most half the --max-length, {limit}.")
        if self.alphabet_size < 2 * self.max_length:
            least = 2 * self.max_length
            raise ValueError(
                f"--alphabet-size {self.alphabet_size}: expected at least twice the --max-length, {least}."
            )

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        unused = {}
        if not any(RECALL_TASKS[name].has_items for name in self.tasks):
            unused["max_items"] = "a task with several items among --tasks"
        if set(self.tasks) == {"parity"}:
            unused["alphabet_size"] = "another task than parity among --tasks"
        return unused

    def task(self, name: str, seed: int = 0) -> RecallTask:
        """Return a task with its training sizes."""
        task = RECALL_TASKS[name]
        items = (1, self.max_items if task.has_items else 1)
        alphabet_size = 2 if name == "parity" else self.alphabet_size
        return task(alphabet_size, (task.min_length, self.max_length), items, self.batch_size, seed)

    def test_sizes(self, name: str) -> list[tuple[int, int]]:
        """Return the lengths and numbers of items to test a task at, from small to large."""
        task = RECALL_TASKS[name]
        lengths = sorted({max(task.min_length, 2 * self.max_length >> n) for n in range(4)})
        items = sorted({max(1, 2 * self.max_items >> n) for n in range(5)}) if task.has_items else [1]
        return [(length, n) for n in items for length in lengths if task.shortest(n) <= length]

    def model_config(self, name: str) -> Any:
        """Return the config of a model, with a context that holds the longest test."""
        context = {"context_length": 2 * (self.max_length + self.max_items) + 2}
        if self.smoke:
            return tiny_config(name, **SMOKE_SIZES, **context)
        default = MODELS[name]()
        depth = min(2, getattr(default, "num_layers", 1))
        pattern = getattr(default, "pattern", "")[-depth:]  # one block of each kind
        config = sized(name, num_layers=depth, pattern=pattern, **context)
        return match_parameter_count(config, VOCABULARY_SIZE, PARAMETERS)


SMOKE = {
    "tasks": ("associative_recall", "parity"),
    "models": ("lstm", "transformer"),
    "max_length": 4,
    "max_items": 2,
    "alphabet_size": 8,
    "steps": 40,
    "batch_size": 8,
    "test_rows": 20,
    "train": {"warmup_steps": 4, "log_every": 10, "validate_every": 20, "checkpoint_every": 20},
}

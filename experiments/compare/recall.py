"""Train the models of a comparison, small and of the same kinds, to recall: what their losses do not tell.

Rows and models are those of `experiments.recall` at its defaults: up to 8 pairs of a key and a value in 16 positions,
then each key again, whose value is asked for; two layers, some 100,000 parameters. The runs are in the folder `recall`
of the comparison.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from experiments.common.tasks import RecallRun, recall_model, task_run
from experiments.compare.settings import CompareConfig
from experiments.compare.sweep import diverging
from keras_seq import training
from keras_seq.commands.options import SMOKE_TRAIN
from keras_seq.data.synthetic import RECALL_TASKS, RecallTask
from keras_seq.reports.comparison import Recall
from keras_seq.training import distributed

TASK = "associative_recall"


@dataclasses.dataclass(frozen=True)
class RecallSettings:
    """Hold what decides the runs: of the options of the comparison, steps and tracker only."""

    steps: int
    train: training.TrainConfig
    smoke: bool
    length: int = 16
    items: int = 8
    alphabet_size: int = 32
    batch_size: int = 64
    test_rows: int = 256

    @classmethod
    def of(cls, config: CompareConfig) -> "RecallSettings":
        """Return the settings of a comparison."""
        intervals = SMOKE_TRAIN if config.smoke else {"validate_every": 100, "checkpoint_every": 100}
        tiny = {"length": 4, "items": 2, "alphabet_size": 8, "batch_size": 8} if config.smoke else {}
        train = training.TrainConfig(tracker=config.train.tracker, **intervals)
        return cls(config.recall_steps, train, config.smoke, **tiny)

    def task(self, name: str, seed: int) -> RecallTask:
        """Return the task at the sizes of training."""
        return RECALL_TASKS[name](self.alphabet_size, (1, self.length), (1, self.items), self.batch_size, seed)

    def test_sizes(self, name: str) -> list[tuple[int, int]]:
        """Return the lengths and numbers of pairs to test at: the largest of training, and twice that length."""
        return [(self.length, self.items), (2 * self.length, self.items)]


def recall_runs(config: CompareConfig, folder: pathlib.Path) -> list[tuple[pathlib.Path, int, Callable[[], dict]]]:
    """Return the runs of all models and seeds as `run_all` takes them; none with `--recall-steps 0`."""
    settings, planned, runs = RecallSettings.of(config), _planned(config), []
    if config.recall_steps and not planned:
        print(f"No recall: the devices do not divide its batches of {settings.batch_size} rows, or divide models.")
    for model, seed in planned:
        model_config = recall_model(model, 2 * (settings.length + settings.items) + 2, config.smoke)

        def new_task(_, model_config=model_config, seed=seed):
            vocabulary_size = settings.task(TASK, seed).vocabulary_size
            small = model_config.build_model(vocabulary_size, dtype=settings.train.dtype_policy)
            return RecallRun(small, settings, TASK, seed)

        run = task_run(folder / "recall", settings, f"{TASK}-{model}", model_config, new_task, seed=seed)
        runs.append(diverging(*run))
    return runs


def recall_results(config: CompareConfig, results: Sequence[dict]) -> Recall | None:
    """Return what the runs have recalled, from their results in the order of `recall_runs`; None without runs."""
    if not results:
        return None
    settings, rows = RecallSettings.of(config), []
    for (model, seed), result in zip(_planned(config), results, strict=True):
        scores = {}
        if "diverged" not in result:
            trained, longer = (group["accuracy"] for group in result["groups"])
            scores = {"parameters": result["parameters"], "accuracy": trained, "twice_as_long": longer}
        rows.append({"model": model, "seed": seed, **scores})
    chance = settings.task(TASK, seed=0).chance(settings.length, settings.items)
    return Recall(settings.items, settings.length, settings.steps, chance, rows)


def _planned(config):
    """Return model and seed of each run; none if the devices of `--devices` or `--mesh` cannot share these models."""
    rows = RecallSettings.of(config).batch_size
    is_shared = rows % distributed.mesh_size(distributed.DATA) == 0 and distributed.mesh_size(distributed.MODEL) == 1
    seeds = range(config.num_seeds) if config.recall_steps and is_shared else ()
    return [(model, seed) for seed in seeds for model in config.models]

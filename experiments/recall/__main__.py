"""Which of pairs, copies, a parity and a needle does each model recall, and over which distance?

    python -m experiments.recall                                     # an LSTM, a Transformer and Mamba on five tasks
    python -m experiments.recall --tasks associative_recall --models transformer hybrid gated_deltanet rwkv7
    python -m experiments.recall --num-seeds 3 --steps 2000
    python -m experiments.recall --smoke                             # tiny sizes, takes seconds

Time: 10 minutes on 2 cores.

Every task has a solution, which a test checks. Expected (docs/experiments.md): two layers of attention recall all of 8
pairs, at twice the length too, and the LSTM of equal size hardly more than a guess; the LSTM tells the parity of rows
twice as long as those of training, and attention that of no row it could not learn by heart.
"""

import pathlib

from experiments.common.command import experiment_main
from experiments.common.plots import pixels
from experiments.common.reports import Report
from experiments.common.tasks import run_task
from experiments.recall.findings import find
from experiments.recall.plots import single
from experiments.recall.report import recall_report
from experiments.recall.scores import RecallRun
from experiments.recall.settings import SMOKE, RecallConfig
from keras_seq.tracking import Summaries


def train_all(settings: RecallConfig, folder: pathlib.Path) -> Report:
    """Train every model on every task, unless it is finished in `folder`, and report what they recall."""
    for name in settings.models:  # raises before anything is written
        settings.model_config(name).build_model(settings.task(settings.tasks[0]).vocabulary_size)
    print(
        f"{len(settings.tasks)} tasks of lengths up to {settings.max_length}, {len(settings.models)} models, "
        f"{settings.steps:,} steps of {settings.batch_size} rows each"
    )
    rows = []
    for task in settings.tasks:
        for seed in range(settings.num_seeds):
            for model in settings.models:
                rows.append(train_one(settings, folder, task, model, seed))
    return recall_report(folder, rows)


def train_one(settings: RecallConfig, folder: pathlib.Path, task: str, name: str, seed: int) -> dict:
    """Return the result of a model on a task."""
    config = settings.model_config(name)

    def new_task(_):
        model = config.build_model(settings.task(task).vocabulary_size, dtype=settings.train.dtype_policy)
        run = RecallRun(model, settings, task, seed)

        def accuracies():
            row = {"task": task, "model": name, "parameters": 0, "train_seconds": 0, "groups": run.groups()}
            return Summaries({}, images={"recall": pixels(single(find([row])[0].cells, f"{task}, {name}"))})

        run.diagnostics = [accuracies]
        return run

    return {**run_task(folder, settings, f"{task}-{name}", config, new_task, seed=seed), "model": name}


main = experiment_main("recall", RecallConfig, SMOKE, train_all, __doc__)

if __name__ == "__main__":
    main()

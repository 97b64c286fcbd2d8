"""Tasks with known answers: one protocol, and one function that trains a model on a task and tests it once.

batches as a function of the step, their loss -> training -> scores of other examples, by group (length, kind)
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras

from experiments.common.jobs import run_once
from keras_seq import training
from keras_seq.data import Corpus
from keras_seq.runs.folders import run_config
from keras_seq.tracking import Summaries


class Task(Protocol):
    """A task for one model; where `validate` scores a sample, its `final_validate` scores all."""

    model: keras.Model
    dataset: Callable  # from start_step and stop_step to the tf.data.Dataset of the training batches
    tokens_per_step: int  # targets of a batch, on average
    loss: keras.losses.Loss | None  # of training; None for the cross-entropy of logits
    diagnostics: Sequence[Callable[[], Summaries]]  # further summaries for TensorBoard

    def validate(self) -> Summaries:
        """Score examples that are not trained on, each time the same: `val_loss`, accuracies, a `sample` in words."""

    def test(self) -> dict:
        """Score further examples; return entries of the result, such as `groups`: a dict of scores for each group.

        A group has a name or number (`group`), `trained` (whether the training examples have it) and `examples`.
        """


def run_task(
    folder: pathlib.Path,
    settings: Any,
    name: str,
    model_config: Any,
    new_task: Callable[[str], Task],
    train: training.TrainConfig | None = None,
    corpus: Corpus | None = None,
    seed: int | None = None,
    **options,
) -> dict:
    """Return the model's name, its run NAME-seedSEED in `folder`, and its result; train and test it if there is none.

    `settings` have `steps`, `seed` and `train`; another `train` or `seed` replaces theirs. `options` are those of
    `train_model`.
    """
    seed, train = settings.seed if seed is None else seed, train or settings.train
    run = folder / f"{name}-seed{seed}"

    def train_one():
        task = new_task(name)
        return training.train_model(
            run,
            task.model,
            task.dataset,
            task.tokens_per_step,
            settings.steps,
            train,
            task.validate,
            run_config(settings, name, model_config, train, task.model, corpus, seed=seed),
            loss=task.loss,
            final_validate_fn=getattr(task, "final_validate", None),
            diagnostics=task.diagnostics,
            finish=lambda summaries: {"model": name, **task.test()},
            **options,
        )

    return {"model": name, "run": run.name, **run_once(run, seed, train_one)}

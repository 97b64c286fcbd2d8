"""Tasks with known answers: one protocol, and one function that trains a model on a task and tests it.

batches as a function of the step, their loss -> training -> scores of other examples, by group (length, kind)
"""

import pathlib
from collections.abc import Callable
from typing import Any, Protocol

import keras

from experiments.frame.experiment import run_config
from keras_seq import training
from keras_seq.data import Corpus
from keras_seq.tracking import Summaries


class Task(Protocol):
    """A task for one model.

    Attributes:
        model: The model to train and to save.
        dataset: Function `(start_step, stop_step) -> tf.data.Dataset` of the training batches.
        tokens_per_step: Targets of a batch, on average.
        loss: Keras loss of training; None for the cross-entropy of logits.
    """

    model: keras.Model
    dataset: Callable
    tokens_per_step: int
    loss: keras.losses.Loss | None

    def validate(self) -> Summaries:
        """Score examples that are not trained on, each time the same: `val_loss`, accuracies, a `sample` in words."""

    def test(self) -> dict:
        """Score further examples; return entries of the result, such as `groups`: a dict of scores for each group.

        A group has a name or number (`group`), `trained` (whether the training examples have it) and `examples`.
        """


def train_on_task(
    run: pathlib.Path,
    settings: Any,
    name: str,
    model_config: Any,
    task: Task,
    train: training.TrainConfig,
    corpus: Corpus | None = None,
    **options,
) -> dict:
    """Train a model on a task, from its latest checkpoint if there is one, test it, and return its result.

    Args:
        run: Run folder.
        settings: Settings of the experiment, with `steps` and `seed`.
        name: Name of the model.
        model_config: Dataclass that the model is built from.
        task: The task.
        train: All other options of training.
        corpus: The text of the task, if it has one.
        **options: Further arguments of `train_model`.
    """
    return training.train_model(
        run,
        task.model,
        task.dataset,
        task.tokens_per_step,
        settings.steps,
        train,
        task.validate,
        run_config(settings, name, model_config, train, task.model, corpus, seed=settings.seed),
        loss=task.loss,
        finish=lambda summaries: {"model": name, **task.test()},
        **options,
    )

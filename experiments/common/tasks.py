"""Tasks with known answers: one protocol, and one function that trains a model on a task and tests it once.

batches as a function of the step, their loss -> training -> scores of other examples, by group (length, kind)

`RecallRun` is the task of `experiments.recall`, and of the last minute of `experiments.compare`.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

from experiments.common.jobs import run_once
from keras_seq import training
from keras_seq.data import Corpus
from keras_seq.data.synthetic import RecallTask
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.evaluation.losses import token_losses
from keras_seq.models import MODELS
from keras_seq.models.config import match_parameter_count, sized, tiny_config
from keras_seq.ops.compiled import compiled
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


def task_run(
    folder: pathlib.Path,
    settings: Any,
    name: str,
    model_config: Any,
    new_task: Callable[[str], Task],
    train: training.TrainConfig | None = None,
    corpus: Corpus | None = None,
    seed: int | None = None,
    **options,
) -> tuple[pathlib.Path, int, Callable[[], dict]]:
    """Return the run NAME-seedSEED in `folder` as `run_all` takes it: it trains a model on a task and tests it.

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

    return run, seed, train_one


def run_task(folder: pathlib.Path, settings: Any, name: str, *args, **kwargs) -> dict:
    """Return the model's name, the name of its `task_run` and its result; train and test it if there is none."""
    run, seed, train_one = task_run(folder, settings, name, *args, **kwargs)
    return {"model": name, "run": run.name, **run_once(run, seed, train_one)}


# Recall

PARAMETERS, VOCABULARY_SIZE = 100_000, 65  # of every model, and the ids it would have
SMOKE_SIZES = {"num_layers": 1, "feed_forward_dim": 32}
VALIDATION, TEST = 2**40, 2**41  # added to the training seed, so that no row is shared
VALIDATION_ROWS = 64


def is_scored(y: np.ndarray, length: int) -> np.ndarray:
    """Return which targets `[B, T]` count, of rows of this length."""
    return (y >= 0) & (np.arange(y.shape[1]) >= length - 1)


class RecallRun:
    """A task of memory for one model; `settings` have `task`, `test_sizes` and `test_rows` (`RecallConfig`)."""

    def __init__(self, model: keras.Model, settings: Any, name: str, seed: int):
        self.model, self.settings, self.name, self.seed = model, settings, name, seed
        self.task = settings.task(name, seed)
        self.dataset, self.tokens_per_step = self.task.dataset, self.task.tokens_per_step
        self.loss, self.diagnostics = TokenCrossEntropy(), []
        forward = functools.partial(model, training=False)  # TensorFlow counts the traces of a lambda over all runs
        self.logits = compiled(forward, model, reduce_retracing=True)

    def validate(self) -> Summaries:
        """Score rows of the training sizes: the loss, and the accuracy over all targets."""
        x, y = self._rows(self.task, 4 * VALIDATION_ROWS, VALIDATION)
        logits = ops.convert_to_numpy(self.logits(x))
        loss = float(ops.sum(token_losses(logits, y))) / (y >= 0).sum()
        accuracy = float((logits.argmax(-1) == y)[y >= 0].mean())
        return Summaries({"val_loss": float(loss), "accuracy": accuracy}, {"sample": self.sample(x, y, logits)})

    def test(self) -> dict:
        """Score rows of each size up to twice the training's."""
        return {"task": self.name, "groups": self.groups(self.settings.test_rows, TEST)}

    def groups(self, rows: int = VALIDATION_ROWS, seed: int = VALIDATION) -> list[dict]:
        """Return the accuracy at each length and number of items."""
        task, groups = self.task, []
        for length, items in self.settings.test_sizes(self.name):
            x, y = self._rows(task.with_sizes(length, items), rows, seed + 1)
            correct = ops.convert_to_numpy(self.logits(x)).argmax(-1) == y
            accuracy = float(correct[is_scored(y, length)].mean())
            is_trained = length <= task.lengths[1] and items <= task.items[1]
            size = {"group": f"{length} x {items}", "length": length, "items": items, "trained": is_trained}
            score = {"examples": rows, "accuracy": accuracy, "chance": task.chance(length, items)}
            groups.append({**size, **score})
        return groups

    def sample(self, x: np.ndarray, y: np.ndarray, logits: np.ndarray) -> str:
        """Return the first two rows as ids, with what was expected and what the model answers."""
        lines = []
        for row, targets, answers in list(zip(x, y, logits.argmax(-1), strict=True))[:2]:
            queried = targets >= 0
            parts = {"ids": row[row != self.task.padding], "expected": targets[queried], "answered": answers[queried]}
            lines += [f"{name:9}{' '.join(map(str, ids))}" for name, ids in parts.items()]
        return "\n".join(lines)

    def _rows(self, task: RecallTask, rows, seed):
        return dataclasses.replace(task, batch_size=rows, seed=self.seed + seed).batch(0)


def recall_model(name: str, context_length: int, smoke: bool = False) -> Any:
    """Return the config of a model with some 100,000 parameters and at most two layers; for a smoke run a tiny one."""
    if smoke:
        return tiny_config(name, **SMOKE_SIZES, context_length=context_length)
    default = MODELS[name]()
    depth = min(2, getattr(default, "num_layers", 1))
    pattern = getattr(default, "pattern", "")[-depth:]  # one block of each kind
    config = sized(name, num_layers=depth, pattern=pattern, context_length=context_length)
    return match_parameter_count(config, VOCABULARY_SIZE, PARAMETERS)

"""Accuracy of recall, by length and number of items.

    accuracy   fraction of the targets with argmax(logits) = target, from the last of the L positions on

In parity that is the last bit alone, though training has a target at each: the first few can be learned by heart.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from experiments.recall.settings import RecallConfig
from keras_seq.data.synthetic import RecallTask
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.evaluation.losses import token_losses
from keras_seq.ops.compiled import compiled
from keras_seq.tracking import Summaries

VALIDATION, TEST = 2**40, 2**41  # added to the training seed, so that no row is shared
VALIDATION_ROWS = 64


def is_scored(y: np.ndarray, length: int) -> np.ndarray:
    """Return which targets `[B, T]` count, of rows of this length."""
    return (y >= 0) & (np.arange(y.shape[1]) >= length - 1)


class RecallRun:
    """A task for one model (`experiments.common.tasks.Task`)."""

    def __init__(self, model: keras.Model, settings: RecallConfig, name: str, seed: int):
        self.model, self.settings, self.name, self.seed = model, settings, name, seed
        self.task = settings.task(name, seed)
        self.dataset, self.tokens_per_step = self.task.dataset, self.task.tokens_per_step
        self.loss, self.diagnostics = TokenCrossEntropy(), []
        self.logits = compiled(lambda ids: model(ids, training=False), model, reduce_retracing=True)

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
            sized = task.with_sizes(length, items)
            x, y = self._rows(sized, rows, seed + 1)
            correct = ops.convert_to_numpy(self.logits(x)).argmax(-1) == y
            groups.append(
                {
                    "group": f"{length} x {items}",
                    "length": length,
                    "items": items,
                    "trained": length <= task.lengths[1] and items <= task.items[1],
                    "examples": rows,
                    "accuracy": float(correct[is_scored(y, length)].mean()),
                    "chance": task.chance(length, items),
                }
            )
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

"""nanoGPT's estimate of the loss: the mean over random windows, each from the zero state."""

import numpy as np

from keras_seq.data import RandomWindows
from keras_seq.evaluation import Evaluator

EVAL_BATCH_SIZE, EVAL_BATCHES = 64, 200  # nanoGPT's batch_size and eval_iters


def random_windows_loss(model, ids, sequence_length: int, num_batches: int = EVAL_BATCHES) -> tuple[float, float]:
    """Return the loss of ids `[N]` in nats per character, and its standard error over the windows."""
    windows = RandomWindows(ids, EVAL_BATCH_SIZE, sequence_length, seed=1337)
    evaluator = Evaluator(model, batch_size=EVAL_BATCH_SIZE)
    losses = np.concatenate(
        [evaluator.independent_token_losses(*windows.batch(step)).mean(axis=1) for step in range(num_batches)]
    )
    return float(losses.mean()), float(losses.std(ddof=1) / len(losses) ** 0.5)

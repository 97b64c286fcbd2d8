"""Score the ensembles of `experiments.shakespeare`, also by nanoGPT's estimate, and say how certain that is."""

from collections.abc import Sequence

import numpy as np

from experiments.frame.tables import plus_minus
from experiments.shakespeare.settings import ShakespeareConfig
from keras_seq.data import RandomWindows
from keras_seq.evaluation import Evaluator

NANO_GPT_LOSS = 1.4697  # nats per character, from nanoGPT's README: 10.65 million parameters, A100, best validation
EVAL_BATCH_SIZE, EVAL_BATCHES = 64, 200  # nanoGPT's batch_size and eval_iters


def random_windows_loss(model, ids, sequence_length: int, num_batches: int = EVAL_BATCHES) -> tuple[float, float]:
    """Return nanoGPT's estimate of the loss of ids `[N]`, in nats per character, and its standard error."""
    windows = RandomWindows(ids, EVAL_BATCH_SIZE, sequence_length, seed=1337)
    evaluator = Evaluator(model, batch_size=EVAL_BATCH_SIZE)
    losses = np.concatenate(
        [evaluator.independent_token_losses(*windows.batch(step)).mean(axis=1) for step in range(num_batches)]
    )
    return float(losses.mean()), float(losses.std(ddof=1) / len(losses) ** 0.5)


def by_model(rows: Sequence[dict]) -> list[list[dict]]:
    """Return the rows of each model, one for each seed; the model of the lowest mean val_loss is first."""
    groups = [[row for row in rows if row["model"] == name] for name in {row["model"]: None for row in rows}]
    return sorted(groups, key=lambda group: sum(row["val_loss"] for row in group))


def is_nano_gpts_text(config: ShakespeareConfig) -> bool:
    """Return whether the scored text is the one of nanoGPT's loss."""
    return config.corpus == "shakespeare" and not config.score_on_dev_split


def verdict(config: ShakespeareConfig, rows: Sequence[dict]) -> str:
    """Say what the best model reaches, and how certain that is."""
    best = by_model(rows)[0]
    loss, random_loss = (plus_minus([row[key] for row in best], 4) for key in ("val_loss", "val_random_windows_loss"))
    error = f"one seed; standard error over the windows {best[0]['val_random_windows_standard_error']:.4f}"
    nano_gpt = f"; nanoGPT's README reports {NANO_GPT_LOSS} for 10.65 M parameters" if is_nano_gpts_text(config) else ""
    return (
        f"{best[0]['model']}, an ensemble of {config.num_members} with {best[0]['parameters'] / 1e6:.2f} M parameters, "
        f"has a val_loss@{config.context_length} of {loss}, and on random windows {random_loss} "
        f"({error if len(best) == 1 else 'standard deviations over seeds'}){nano_gpt}."
    )

"""HTML page of `experiments.score_text`: a text whose tokens are colored by their loss.

no color: probability 1          full color: log V nats or more, no better than a uniform guess among V tokens
"""

import math
import pathlib

import numpy as np

from experiments.frame.finished_run import describe_run, run_label
from experiments.frame.pages import render
from keras_seq.evaluation import TextScore


def score_page(score: TextScore, run: pathlib.Path, vocabulary_size: int, num_highest_losses: int) -> str:
    """Return the page of a text that the model of a run has scored."""
    uniform_loss = math.log(vocabulary_size)
    shades = np.clip(score.token_losses / uniform_loss, 0, 1).tolist()
    return render(
        "score_text",
        title=f"How well {describe_run(run)} predicts a text",
        run=run_label(run),
        score=score,
        tokens=[*zip(score.tokens, score.token_losses.tolist(), shades, strict=True)],
        uniform_loss=uniform_loss,
        highest=score.highest_losses(num_highest_losses),
    )

"""The tokens of a scored text with the highest losses, each with its place and the text around it."""

from typing import NamedTuple

import numpy as np

from keras_seq.evaluation import TextScore
from keras_seq.tokenizers.show_whitespace import show_whitespace

CONTEXT_CHARACTERS = 20  # on each side of the token


class HighLoss(NamedTuple):
    """A token with a high loss, in nats; lines and columns count from 1, and whitespace is shown as symbols."""

    index: int
    loss: float
    line: int
    column: int
    prefix: str
    token: str
    suffix: str


def highest_losses(score: TextScore, count: int) -> list[HighLoss]:
    """Return the tokens with the highest losses, in descending order."""
    order = 1 + np.argsort(-score.token_losses[1:], kind="stable")[:count]
    return [_describe(score, index) for index in order.tolist()]


def _describe(score, index):
    before, after = (
        "".join(tokens) for tokens in (score.tokens[:index], score.tokens[index + 1 :][:CONTEXT_CHARACTERS])
    )
    texts = before[-CONTEXT_CHARACTERS:], score.tokens[index], after[:CONTEXT_CHARACTERS]
    place = before.count("\n") + 1, len(before) - before.rfind("\n")
    return HighLoss(index, float(score.token_losses[index]), *place, *map(show_whitespace, texts))

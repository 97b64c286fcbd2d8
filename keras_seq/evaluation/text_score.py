"""Score a text by a language model: the loss of every token given all preceding ones.

The text is read as in `Evaluator.streaming_loss`: a recurrent model carries its state, a model with a context length C
sees windows of C that move by C / 2. The first token has no context and no loss.
"""

import dataclasses
import math
from typing import NamedTuple

import keras
import numpy as np

from keras_seq.evaluation.evaluator import Evaluator
from keras_seq.generation.sampling_loop import not_finite
from keras_seq.layers.introspection import check_tokenizer
from keras_seq.tokenizers.show_whitespace import show_whitespace

CONTEXT_CHARACTERS = 20  # on each side of a token with a high loss


class HighLoss(NamedTuple):
    """A token with a high loss, in nats; lines and columns count from 1, and whitespace is shown as symbols."""

    index: int
    loss: float
    line: int
    column: int
    prefix: str
    token: str
    suffix: str


@dataclasses.dataclass(frozen=True)
class TextScore:
    """Hold the tokens of a text and their losses.

    Args:
        tokens: Text of each token; joined they are the text, if the tokenizer is lossless.
        token_losses: float32 `[N]`, in nats; NaN for the first token.
        num_characters: Characters of all tokens after the first.
    """

    tokens: tuple[str, ...]
    token_losses: np.ndarray
    num_characters: int

    @property
    def loss_per_character(self) -> float:
        """Return the loss of all tokens after the first in nats per character."""
        return float(np.sum(self.token_losses[1:], dtype="float64")) / self.num_characters

    @property
    def bits_per_character(self) -> float:
        """Return the loss in bits per character."""
        return self.loss_per_character / math.log(2)

    def highest_losses(self, count: int = 10) -> list[HighLoss]:
        """Return the tokens with the highest losses, each with its place and the text around it, in descending order.

        Args:
            count: Number of tokens; fewer are returned if the text has no more.
        """
        order = 1 + np.argsort(-self.token_losses[1:], kind="stable")[:count]
        return [self._high_loss(index) for index in order.tolist()]

    def _high_loss(self, index):
        before = "".join(self.tokens[:index])
        after = "".join(self.tokens[index + 1 :][:CONTEXT_CHARACTERS])
        texts = before[-CONTEXT_CHARACTERS:], self.tokens[index], after[:CONTEXT_CHARACTERS]
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        return HighLoss(index, float(self.token_losses[index]), *place, *map(show_whitespace, texts))


def score_text(model: keras.Model, tokenizer, text: str) -> TextScore:
    """Score a text of at least two tokens.

    Args:
        model: A `LanguageModel`; or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`, which reads the
            text in windows of its length, or of 1,024 tokens, that move by half.
        tokenizer: The tokenizer that the model was trained with.
        text: Any text; unknown characters are handled as the tokenizer is configured.

    Returns:
        The tokens and their losses.

    Raises:
        ValueError: If there are fewer than two tokens, an unknown character, another vocabulary size than the model's,
            logits that are not finite, or a model that is not causal.
    """
    evaluator = Evaluator(model)
    check_tokenizer(tokenizer, model, evaluator.vocabulary_size)
    ids = tokenizer.encode(text)
    if len(ids) < 2:
        raise ValueError(f"The text {text[:40]!r} has {len(ids)} tokens; expected at least 2: one predicts the next.")
    losses = np.concatenate([[np.nan], evaluator.streaming_token_losses(ids)]).astype("float32")
    if np.isnan(losses[1:]).any():
        raise not_finite()
    texts = {n: tokenizer.decode([n]) for n in np.unique(ids).tolist()}  # once per id: decoding takes a millisecond
    tokens = tuple(texts[n] for n in ids.tolist())
    return TextScore(tokens, losses, len(text) - len(tokens[0]))

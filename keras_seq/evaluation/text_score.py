"""How surprised a model is by a text: -log p of every token, from all that stands before it.

The text is read from start to end as `Evaluator.warm` reads it: a recurrent model carries its state, a model with a
context of C sees windows of C that move by C / 2. The first token has nothing before it and no score.
"""

import dataclasses
import math

import numpy as np

from keras_seq.evaluation.evaluator import Evaluator
from keras_seq.generation.sampling_loop import not_finite
from keras_seq.layers.introspection import check_tokenizer


@dataclasses.dataclass(frozen=True)
class TextScore:
    """A text in the pieces that its tokens stand for, and the nats that each cost.

    Args:
        pieces: the text of each token; put together, they are the text, if the tokenizer keeps all of it.
        nats: float32 `[N]`; NaN for the first.
        characters: how many characters the pieces after the first stand for.
    """

    pieces: tuple[str, ...]
    nats: np.ndarray
    characters: int

    @property
    def nats_per_character(self) -> float:
        """The sum over all pieces but the first, divided by their characters."""
        return float(np.sum(self.nats[1:], dtype="float64")) / self.characters

    @property
    def bits_per_character(self) -> float:
        """The same in bits."""
        return self.nats_per_character / math.log(2)


def score_text(model, tokenizer, text) -> TextScore:
    """Scores a text of at least two tokens.

    Args:
        model: a `LanguageModel`; or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`, which reads the
            text in windows of its length, or of 1,024 tokens, that move by half.
        tokenizer: the `Vocabulary` or other tokenizer it was trained with.
        text: any text; what the tokenizer does not know follows its policy.

    Raises:
        ValueError: fewer than two tokens, a character that the tokenizer does not know, a tokenizer of another
            number of ids than the model, logits that are not finite, a model that sees the future.
    """
    evaluator = Evaluator(model)
    check_tokenizer(tokenizer, model, evaluator.vocabulary_size)
    ids = tokenizer.encode(text).numpy()
    if len(ids) < 2:
        raise ValueError(f"The text {text[:40]!r} has {len(ids)} tokens; expected at least 2: one predicts the next.")
    nats = np.concatenate([[np.nan], evaluator.streaming_token_losses(ids)]).astype("float32")
    if np.isnan(nats[1:]).any():
        raise not_finite()
    texts = {n: tokenizer.decode([n]) for n in np.unique(ids).tolist()}  # once each: a look-up takes a millisecond
    pieces = tuple(texts[n] for n in ids.tolist())
    return TextScore(pieces, nats, len(text) - len(pieces[0]))

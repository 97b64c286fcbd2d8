"""Score a text by a language model: the loss of every token given all preceding ones. Compare two models' losses.

The text is read as in `Evaluator.streaming_loss`: a recurrent model carries its state, a model with a context length C
sees windows of C that move by C / 2. The first token has no context and no loss, so its characters do not count. One
that the tokenizer adds, such as `<s>`, has no characters: then all of the text count.
"""

import dataclasses
import html
import itertools
import math
from typing import NamedTuple

import keras
import numpy as np

from keras_seq import checks
from keras_seq.evaluation.evaluator import Evaluator
from keras_seq.evaluation.streaming import DynamicEvaluation
from keras_seq.generation.sampling_loop import not_finite
from keras_seq.layers.introspection import check_tokenizer
from keras_seq.tokenizers.base import check_text, piece_ends, show_whitespace, token_offsets

CONTEXT_CHARACTERS = 20  # on each side of a token with a high loss
MAX_TOKENS = 10_000  # tokens in a notebook


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
        tokens: The piece of the text that each token stands for; joined they are the text. That of an unknown word is
            the word, that of a token that the tokenizer adds is empty; of the parts of a character, the first has it.
        token_losses: float32 `[N]`, in nats; NaN for the first token.
        num_characters: Characters of all tokens after the first.
        names: Names of the tokens in the vocabulary, shown for those of empty pieces, such as `</s>`.
    """

    tokens: tuple[str, ...]
    token_losses: np.ndarray
    num_characters: int
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the sizes and the losses."""
        losses = f"{self.loss_per_character:.3f} nats and {self.bits_per_character:.3f} bits per character"
        return f"<TextScore: {len(self.tokens):,} tokens, {losses}>"

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
        checks.non_negative_integer("count", count)
        order = 1 + np.argsort(-self.token_losses[1:], kind="stable")[:count]
        return [self._high_loss(index) for index in order.tolist()]

    def piece(self, index: int) -> str:
        """Return the piece of a token, or its name where that is empty."""
        return self.tokens[index] or (self.names[index] if self.names else "")

    def _repr_html_(self) -> str:
        """Return the text for a notebook: the darker a token, the higher its loss, shown under the pointer."""
        most = max(np.nanmax(self.token_losses, initial=0), 1e-9)
        spans = []
        for index, loss in enumerate(self.token_losses[:MAX_TOKENS].tolist()):
            text = html.escape(self.piece(index))
            if not math.isnan(loss):
                color = f"rgba(220, 80, 40, {max(0, loss) / most:.2f})"
                text = f'<span style="background: {color}" title="{loss:.2f} nats">{text}</span>'
            spans.append(text)
        more = f" and {len(self.tokens) - MAX_TOKENS:,} more tokens" if len(self.tokens) > MAX_TOKENS else ""
        return (
            f"<p>{self.bits_per_character:.3f} bits per character, {self.num_characters:,} characters</p>"
            f'<pre style="white-space: pre-wrap">{"".join(spans)}</pre>{more}'
        )

    def _high_loss(self, index):
        before = "".join(self.tokens[:index])
        after = "".join(self.tokens[index + 1 :][:CONTEXT_CHARACTERS])
        texts = before[-CONTEXT_CHARACTERS:], self.piece(index), after[:CONTEXT_CHARACTERS]
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        return HighLoss(index, float(self.token_losses[index]), *place, *map(show_whitespace, texts))


def score_text(model: keras.Model, tokenizer, text: str, adapt: DynamicEvaluation | None = None) -> TextScore:
    """Return the tokens of a text and their losses.

    Args:
        model: A `LanguageModel`; or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`. Such a model
            reads the text in windows of its length, or of 1,024 tokens, that move by half.
        tokenizer: The tokenizer that the model was trained with.
        text: At least two tokens; unknown characters are handled as the tokenizer is configured.
        adapt: How the model learns from what it has scored (dynamic evaluation); None for the model as it is.

    Raises:
        ValueError: If there are fewer than two tokens, no character after the first one, an unknown character, another
            vocabulary size than the model's, logits that are not finite, or a model that is not causal; or if the text
            is not a `str`.
    """
    check_text(text)
    evaluator = Evaluator(model)
    check_tokenizer(tokenizer, model, evaluator.vocabulary_size)
    ids, offsets = token_offsets(tokenizer, text)
    if len(ids) < 2:
        raise ValueError(f"The text {text[:40]!r} has {len(ids)} tokens; expected at least 2: one predicts the next.")
    ends = piece_ends(text, offsets).tolist()
    if ends[0] == len(text):
        raise ValueError(f"The text {text[:40]!r} has no character after its first token; expected a longer text.")
    losses = evaluator.streaming_token_losses(ids) if adapt is None else evaluator.dynamic_token_losses(ids, adapt)
    losses = np.concatenate([[np.nan], losses]).astype("float32")
    if np.isnan(losses[1:]).any():
        raise not_finite()
    vocabulary = getattr(tokenizer, "vocabulary", None)
    names = () if vocabulary is None else tuple(vocabulary[id] for id in ids.tolist())
    tokens = tuple(text[start:end] for start, end in itertools.pairwise([0, *ends]))
    return TextScore(tokens, losses, len(text) - len(tokens[0]), names)


# Interval of the difference between two models' losses, over text windows (Efron's bootstrap, 1979) and seeds.
#
#     difference = mean over windows w of d_w + deviations of the drawn seeds
#     d_w        = mean over seeds of (loss of the second model - loss of the first one) in window w
#
# Both models are scored on the same windows, so windows are paired: blocks of adjacent windows are drawn with
# replacement, the same for both models (a block bootstrap, since neighboring windows are not independent). Seeds are
# not paired: seed 0 of one model is unrelated to seed 0 of the other. Two or three of them are too few to draw from:
# their part is Student's t with the standard error of both means and Welch's degrees of freedom (Welch, 1947), of the
# variance between seeds that the windows do not explain. A model of one seed is taken to vary as the other one does;
# with one seed each, the interval covers the variation over the text only.

BLOCK_WINDOWS = 16  # adjacent windows drawn together
NUM_SAMPLES, MAX_INDICES = 10_000, 1 << 20  # means that are drawn, and blocks that are drawn for them at a time


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference with the bounds `low` and `high` of its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Return whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def paired_difference(first: np.ndarray, second: np.ndarray, seed: int = 0) -> Difference:
    """Compute the mean of `second` minus the mean of `first`, with its 95 % interval: bootstrap and Student's t.

    Of one window nothing is known but its difference: the interval is infinite.

    Args:
        first: Losses of one model, `[seeds, windows]`, all windows of one length.
        second: Losses of the other model on the same windows, `[seeds', windows]`.
        seed: Random seed of the draws.

    Raises:
        ValueError: The arrays are not two-dimensional, are empty, or differ in their number of windows.
    """
    first, second = np.asarray(first, "float64"), np.asarray(second, "float64")
    shapes = first.shape, second.shape
    if {len(shape) for shape in shapes} != {2} or first.shape[1] != second.shape[1] or not (first.size and second.size):
        raise ValueError(f"Losses {shapes[0]} and {shapes[1]}; expected [seeds, windows], the same windows in both.")
    random = np.random.default_rng(seed)
    by_window = second.mean(axis=0) - first.mean(axis=0)
    error, freedom = _seed_error(first, second)
    if len(by_window) == 1:
        return Difference(float(by_window[0]), -math.inf, math.inf)
    samples = _resample_windows(by_window, random) + error * random.standard_t(freedom, NUM_SAMPLES)
    low, high = np.quantile(samples, (0.025, 0.975))
    return Difference(float(by_window.mean()), float(low), float(high))


def _resample_windows(values, random):
    """Draw means of blocks of adjacent windows, `[NUM_SAMPLES]`; blocks wrap around the end of the text."""
    count = len(values)
    length = min(BLOCK_WINDOWS, max(1, count // 8))
    blocks = np.convolve(np.concatenate([values, values[: length - 1]]), np.ones(length) / length, mode="valid")
    num_blocks = -(-count // length)
    rows = max(1, MAX_INDICES // num_blocks)  # of the draws at a time
    groups = [min(rows, NUM_SAMPLES - first) for first in range(0, NUM_SAMPLES, rows)]
    means = np.concatenate([blocks[random.integers(count, size=(n, num_blocks))].mean(axis=1) for n in groups])
    # few blocks scatter less around their own mean than around the true one, and say by how much only roughly
    widening = np.sqrt(num_blocks / random.chisquare(num_blocks - 1, NUM_SAMPLES))
    return values.mean() + widening * (means - values.mean())


def _seed_error(first, second):
    """Return the standard error of the difference that seeds make, and its degrees of freedom."""
    shares = [1 / len(losses) for losses in (first, second)]
    several = [losses for losses in (first, second) if len(losses) > 1]
    if len(several) == 1:
        shares = [sum(shares)]
    parts = [share * _seed_variance(losses) for share, losses in zip(shares, several, strict=False)]
    if not sum(parts):
        return 0.0, 1
    freedom = sum(parts) ** 2 / sum(part**2 / (len(losses) - 1) for part, losses in zip(parts, several, strict=True))
    return math.sqrt(sum(parts)), freedom


def _seed_variance(losses):
    """Return the variance of the mean loss between seeds that the windows do not explain."""
    count, windows = losses.shape
    deviations = losses.mean(axis=1) - losses.mean()
    residuals = losses - losses.mean(axis=0) - deviations[:, None]  # explained by neither the seed nor the window
    variance = np.sum(deviations**2) / (count - 1)
    window_variance = np.sum(residuals**2) / ((count - 1) * max(1, windows - 1)) / windows
    return max(0.0, variance - window_variance)

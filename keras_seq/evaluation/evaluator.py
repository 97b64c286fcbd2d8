"""One way of scoring for every model: sums of nats over tokens, divided by the tokens, over a whole text.

    cold@T   every non-overlapping window of T ids, from the zero state or the empty cache
    warm     the text from start to end: a recurrent model carries its state; a model with a context of C sees
             windows of C that move by C / 2; each position counts once, with at least C / 2 before it past the first C

The two answer different questions and are never mixed in one column.
"""

import dataclasses
import functools
import math

import keras
import numpy as np
import tensorflow as tf

from keras_seq import checks
from keras_seq.evaluation.progress_bar import counted
from keras_seq.generation.uncached_model import UncachedModel
from keras_seq.layers.introspection import vocabulary_size

WINDOW = 1024  # ids at a time of a model that takes any number and carries no state
MAX_NATS_PER_WORD = (
    100  # nats on average: what has no shorter words, such as a text without spaces, has none to speak of
)


@dataclasses.dataclass(frozen=True)
class LossSum:
    """A sum of nats and what it is the sum over."""

    nats: float
    tokens: int

    @classmethod
    def of(cls, losses):
        """The sum of an array of nats, in float64."""
        return cls(float(losses.sum(dtype="float64")), losses.size)

    @property
    def mean(self) -> float:
        """Natural-log units per predicted id: the cross-entropy."""
        return self.nats / self.tokens

    @property
    def bits_per_token(self) -> float:
        """The same in bits."""
        return self.mean / math.log(2)

    @property
    def perplexity(self) -> float:
        """exp(nats per token): among how many equally likely ids the model is undecided."""
        return math.exp(self.mean)

    def __add__(self, other):
        return LossSum(self.nats + other.nats, self.tokens + other.tokens)


def nats(logits, targets):
    """-log softmax(logits)[targets] at every position, float32 `[B, T]`."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, tf.cast(logits, tf.float32))


def word_perplexity(loss_per_character, text) -> float | None:
    """exp(nats of the text / its words); None for a text without words. Words are what stands between white space."""
    words = len(text.split())
    nats = loss_per_character * len(text) / words if words else math.inf
    return math.exp(nats) if nats < MAX_NATS_PER_WORD else None


class Evaluator:
    """Scores one model; compiled once for all its validations.

    Args:
        model: a `LanguageModel`; or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`, which carries no
            state: `warm` slides windows of its length over the text, or of 1,024 where it takes any length. On JAX and
            torch a `LanguageModel` is one of those.
        rows: windows scored at a time where they are independent.
    """

    def __init__(self, model, batch_size=64):
        if not callable(model):
            raise ValueError(f"model={model!r}; expected a LanguageModel.")
        self.model = model
        self.batch_size = checks.positive_integer("rows", batch_size)
        steps = all(hasattr(model, part) for part in ("initial_state", "context"))  # unlike an encoder-decoder
        self._carries = steps and keras.backend.backend() == "tensorflow"
        self._independent = tf.function(lambda x, y: nats(model(x, training=False), y), reduce_retracing=True)
        # One row at a time, a loop is all overhead: XLA halves it, if the length is past those that kernels unroll. It
        # compiles for one length; the rest goes without.
        self._compiled_step = tf.function(self._stateful_step, jit_compile=True)
        self._remainder_step = tf.function(self._stateful_step)

    @functools.cached_property
    def _whole(self):
        return UncachedModel(self.model)

    @property
    def vocabulary_size(self):
        """V; None where a model that can step does not say it."""
        return vocabulary_size(self.model) if self._carries else self._whole.vocabulary_size

    def _stateful_step(self, x, y, state):
        logits, state = self.model(x, state=state, training=False, return_state=True)
        return nats(logits, y), state

    def chunked_loss(self, ids, length) -> LossSum:
        """cold@length of the ids `[N]`; what is left over after the last whole window is not scored."""
        return LossSum.of(self.chunked_token_losses(ids, length))

    def chunked_token_losses(self, ids, length):
        """What `cold` adds up: float32 `[windows, length]`. Its mean over the windows is the loss by position."""
        ids, length = self._checked(ids), checks.positive_integer("length", length)
        windows = (len(ids) - 1) // length
        if windows < 1:
            raise ValueError(f"{len(ids)} ids; cold@{length} needs at least {length + 1}.")
        x = ids[: windows * length].reshape(windows, length)
        y = ids[1 : windows * length + 1].reshape(windows, length)
        return self.independent_token_losses(x, y)

    def independent_token_losses(self, x, y):
        """The nats `[rows, T]` of the ids `y` after `x`, `[rows, T]` each: every row from the zero state."""
        return self._windows(np.asarray(x), np.asarray(y), skip=0)

    def streaming_loss(self, ids, length=512) -> LossSum:
        """The ids `[N]` read from start to end, `length` at a time; every id but the first is predicted once."""
        return LossSum.of(self.streaming_token_losses(ids, length))

    def streaming_token_losses(self, ids, length=512):
        """What `warm` adds up: float32 `[N - 1]`."""
        ids, length = self._checked(ids), checks.positive_integer("length", length)
        if len(ids) < 2:
            raise ValueError(f"{len(ids)} ids; a score needs at least 2.")
        if not self._carries:
            whole = self._whole
            if whole.vocabulary_size <= ids.max():
                checks.ids_below("ids", ids, whole.vocabulary_size)
            return np.concatenate([*self._sliding(ids, whole.context_length or WINDOW, whole)])
        if self.model.context_length is not None:
            return np.concatenate([*self._sliding(ids, self.model.context_length)])
        parts, state = [], self.model.get_initial_state(1)
        for start in counted(range(0, len(ids) - 1, length), len(ids)):
            chunk = ids[None, start : start + length + 1]
            score = self._compiled_step if chunk.shape[1] == length + 1 else self._remainder_step
            losses, state = score(chunk[:, :-1], chunk[:, 1:], state)
            parts.append(losses.numpy()[0])
        return np.concatenate(parts)

    def _checked(self, ids):
        """The ids as an array `[N]`, below V where that is known."""
        ids = np.asarray(ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(f"ids of type {ids.dtype} and shape {ids.shape}; expected integers [N].")
        size = vocabulary_size(self.model)
        if size is not None:
            checks.ids_below("ids", ids, size)
        return ids

    def _sliding(self, ids, context, whole=None):
        """The nats of each id after the first, in pieces."""
        context = min(context, len(ids) - 1)
        stride = max(1, context // 2)
        yield self._windows(ids[None, :context], ids[None, 1 : context + 1], skip=0, whole=whole).ravel()
        starts = np.arange(stride, len(ids) - context, stride)
        if len(starts):
            windows = ids[starts[:, None] + np.arange(context + 1)]
            yield self._windows(windows[:, :-1], windows[:, 1:], skip=context - stride, whole=whole).ravel()
        scored = (int(starts[-1]) if len(starts) else 0) + context
        if scored < len(ids) - 1:  # the last window is set back so that it ends with the text
            window = ids[None, len(ids) - 1 - context :]
            skip = context - (len(ids) - 1 - scored)
            yield self._windows(window[:, :-1], window[:, 1:], skip, whole).ravel()

    def _windows(self, x, y, skip, whole=None):
        """The nats `[rows, T - skip]` of windows `[rows, T]`, without their first `skip` positions."""
        score = self._independent if whole is None else lambda x, y: nats(whole.logits(x), y)
        batch_size = counted(range(0, len(x), self.batch_size), x.shape[1] + (len(x) - 1) * (x.shape[1] - skip) + 1)
        parts = [score(x[row : row + self.batch_size], y[row : row + self.batch_size]).numpy() for row in batch_size]
        return np.concatenate(parts)[:, skip:]


@functools.lru_cache(maxsize=2)
def get_evaluator(model) -> Evaluator:
    """The one `Evaluator` of a model, so that all who score it share what is compiled; the last two are remembered."""
    return Evaluator(model)

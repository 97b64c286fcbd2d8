"""Score every model in the same way: sums of token losses, divided by the tokens, over a whole text.

    chunked@T   every non-overlapping window of T tokens, each from the zero state or the empty cache: `val_loss`
    streaming   the text from start to end: `val_loss_streaming`. A recurrent model carries its state; a model with a
                context length C sees windows of C that move by C / 2: every token counts once, and past the first C
                has at least C / 2 tokens before it

The two are different quantities and do not compare.
"""

import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import math
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.evaluation.losses import token_losses
from keras_seq.evaluation.progress_bar import track_progress
from keras_seq.evaluation.streaming import num_parts, streaming_losses
from keras_seq.generation.uncached_model import UncachedModel
from keras_seq.kernels.compiled import compiled
from keras_seq.kernels.devices import divide_rows
from keras_seq.layers.introspection import vocabulary_size

DEFAULT_WINDOW = 1024  # tokens of a window for a model that takes any length and carries no state
MAX_LOSS_PER_WORD = 100  # above it, word perplexity is not reported (e.g. text without spaces)
_SHARED_LOSSES = contextvars.ContextVar("shared_losses", default=None)


@contextlib.contextmanager
def sharing_losses() -> Iterator[None]:
    """Score windows only once within a `with` block, in which no weight may change.

    A validation and its diagnostics read the same windows: `Evaluator.independent_token_losses` returns the array of
    the first call again.
    """
    token = _SHARED_LOSSES.set({})
    try:
        yield
    finally:
        _SHARED_LOSSES.reset(token)


@dataclasses.dataclass(frozen=True)
class LossSum:
    """Hold a sum of token losses and the number of tokens; sums can be added.

    Args:
        total: Sum of the losses, in nats.
        tokens: Number of tokens.
    """

    total: float
    tokens: int

    @classmethod
    def from_losses(cls, losses: np.ndarray) -> "LossSum":
        """Return the sum of an array of token losses, computed in float64."""
        return cls(float(losses.sum(dtype="float64")), losses.size)

    @property
    def mean(self) -> float:
        """Return the cross-entropy in nats per token."""
        return self.total / self.tokens

    @property
    def bits_per_token(self) -> float:
        """Return the cross-entropy in bits per token."""
        return self.mean / math.log(2)

    @property
    def perplexity(self) -> float:
        """Return exp(mean)."""
        return math.exp(self.mean)

    def __add__(self, other):
        """Return the sum over the tokens of both."""
        return LossSum(self.total + other.total, self.tokens + other.tokens)


def word_perplexity(loss_per_character: float, text: str) -> float | None:
    """Return exp(loss of the text / its words), where words are separated by white space.

    Args:
        loss_per_character: Mean loss in nats.
        text: The text.

    Returns:
        The perplexity; None for more than MAX_LOSS_PER_WORD, or a text without words.
    """
    words = len(text.split())
    loss_per_word = loss_per_character * len(text) / words if words else math.inf
    return math.exp(loss_per_word) if loss_per_word < MAX_LOSS_PER_WORD else None


class Evaluator:
    """Score one model; it is compiled once for all evaluations.

    Args:
        model: A `LanguageModel`; or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`, which carries no
            state: for the streaming loss, windows of its length, or of 1,024 if it takes any length, slide over the
            text.
        batch_size: Independent windows scored at a time.

    Raises:
        ValueError: If the model is not callable or `batch_size` is not an integer of at least 1; from the methods, if
            ids are not integers `[N]` below V, or too few.
    """

    def __init__(self, model: keras.Model, batch_size: int = 64):
        if not callable(model):
            raise ValueError(f"model={model!r}; expected a LanguageModel.")
        self.model = model
        self.batch_size = checks.positive_integer("batch_size", batch_size)
        # no encoder-decoder, whose state begins with a source
        self._carries = all(hasattr(model, name) for name in ("get_initial_state", "context_length"))
        self._independent = compiled(self._independent_losses, model, reduce_retracing=True)
        self._step = compiled(self._stateful_step, model)
        # With one row, most of the time is the overhead of the loop, which XLA halves if the length is past those that
        # kernels unroll. It compiles for one length; a shorter text runs without it.
        self._xla_step = compiled(self._stateful_step, model, jit_compile=True)

    @functools.cached_property
    def _uncached(self):
        return UncachedModel(self.model)

    @property
    def vocabulary_size(self) -> int | None:
        """Return V; None if a model that can step does not have it."""
        return vocabulary_size(self.model) if self._carries else self._uncached.vocabulary_size

    def _independent_losses(self, x, y):
        return token_losses(self.model(divide_rows(x), training=False), y)

    def _stateful_step(self, x, y, state):
        logits, state = self.model(x, state=state, training=False, return_state=True)
        return token_losses(logits, y), state

    def chunked_loss(self, ids, sequence_length: int) -> LossSum:
        """Return the loss over disjoint windows, each from the zero state.

        Args:
            ids: Integers `[N]`; those after the last whole window are not scored.
            sequence_length: T, tokens of a window.
        """
        return LossSum.from_losses(self.chunked_token_losses(ids, sequence_length))

    def chunked_token_losses(self, ids, sequence_length: int) -> np.ndarray:
        """Return the token losses of `chunked_loss`; their mean over the windows is the loss by position.

        Args:
            ids: Integers `[N]`; those after the last whole window are not scored.
            sequence_length: T, tokens of a window.

        Returns:
            float32 `[windows, T]`, in nats.

        Raises:
            ValueError: If there are fewer than T + 1 ids.
        """
        ids, length = self._checked(ids), checks.positive_integer("sequence_length", sequence_length)
        windows = (len(ids) - 1) // length
        if windows < 1:
            raise ValueError(f"{len(ids)} ids; expected at least {length + 1} with sequence_length={length}.")
        x = ids[: windows * length].reshape(windows, length)
        y = ids[1 : windows * length + 1].reshape(windows, length)
        return self.independent_token_losses(x, y)

    def independent_token_losses(self, x, y) -> np.ndarray:
        """Return the token losses of independent windows, each from the zero state.

        Args:
            x: Ids `[windows, T]`.
            y: Targets `[windows, T]`: the ids after those of x.

        Returns:
            float32 `[windows, T]`, in nats.
        """
        x, y = np.asarray(x), np.asarray(y)
        shared = _SHARED_LOSSES.get()
        if shared is None:
            return self._windows(x, y, x.size + 1)
        key = (self, x.shape, hashlib.sha256(x.tobytes() + y.tobytes()).digest())
        if key not in shared:
            shared[key] = self._windows(x, y, x.size + 1)
        return shared[key]

    def streaming_loss(self, ids, chunk_length: int = 256, chunked: np.ndarray | None = None) -> LossSum:
        """Return the loss over the text from start to end; every id except the first is predicted once.

        Args:
            ids: Integers `[N]`.
            chunk_length: Tokens per call and row of a model that carries its state.
            chunked: `chunked_token_losses` of the same ids and weights. Where T is the context length, half of the
                windows of the streaming loss are among them and are not scored again.
        """
        return LossSum.from_losses(self.streaming_token_losses(ids, chunk_length, chunked))

    def streaming_token_losses(self, ids, chunk_length: int = 256, chunked: np.ndarray | None = None) -> np.ndarray:
        """Return the token losses of `streaming_loss`.

        Args:
            ids: Integers `[N]`.
            chunk_length: Tokens per call and row of a model that carries its state.
            chunked: As for `streaming_loss`.

        Returns:
            float32 `[N - 1]`, in nats.

        Raises:
            ValueError: If there are fewer than two ids.
        """
        ids, length = self._checked(ids), checks.positive_integer("chunk_length", chunk_length)
        if len(ids) < 2:
            raise ValueError(f"{len(ids)} ids; expected at least 2.")
        if not self._carries:
            uncached = self._uncached
            if uncached.vocabulary_size <= ids.max():
                checks.ids_below("ids", ids, uncached.vocabulary_size)
            return self._sliding(ids, uncached.context_length or DEFAULT_WINDOW, chunked, uncached)
        if self.model.context_length is not None:
            return self._sliding(ids, self.model.context_length, chunked)
        parts = num_parts(self.model, len(ids), length)
        step = self._xla_step if parts == 1 and len(ids) > length else self._step
        return streaming_losses(step, self.model.get_initial_state, ids, min(length, len(ids) - 1), parts)

    def _checked(self, ids):
        """Return the ids as an array `[N]`, checked to be below V if that is known."""
        ids = np.asarray(ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(f"ids of type {ids.dtype} and shape {ids.shape}; expected integers [N].")
        size = vocabulary_size(self.model)
        if size is not None:
            checks.ids_below("ids", ids, size)
        return ids

    def _sliding(self, ids, context_length, chunked=None, uncached=None):
        """Return the losses `[N - 1]` of windows that move by half of their length, in the first that reaches an id.

        `chunked` are the losses of disjoint windows; those of the same length are not scored again.
        """
        length = min(context_length, len(ids) - 1)
        last = len(ids) - 1 - length  # where the last window starts, so that it ends with the text
        starts = np.array([*range(0, last, max(1, length // 2)), last])
        losses, is_new = np.empty((len(starts), length), "float32"), np.ones(len(starts), bool)
        if chunked is not None and chunked.shape == ((len(ids) - 1) // length, length):
            is_new = starts % length > 0
            losses[~is_new] = chunked[starts[~is_new] // length]
        if is_new.any():
            windows = ids[starts[is_new][:, None] + np.arange(length + 1)]
            losses[is_new] = self._windows(windows[:, :-1], windows[:, 1:], len(ids), uncached)
        first_new = np.concatenate([[0], starts[:-1] + length - starts[1:]])
        return losses[np.arange(length) >= first_new[:, None]]

    def _windows(self, x, y, total, uncached=None):
        """Return the losses of windows `[windows, T]`; `total` tokens are shown as the size of the text."""
        score = self._independent if uncached is None else lambda x, y: token_losses(uncached.logits(x), y)
        size, parts = min(self.batch_size, len(x)), []
        for start in track_progress(range(0, len(x), size), total):
            first = min(start, len(x) - size)  # a full last batch: another size would be traced
            losses = score(x[first : first + size], y[first : first + size])
            parts.append(ops.convert_to_numpy(losses)[start - first :])
        return np.concatenate(parts)


@functools.lru_cache(maxsize=2)
def get_evaluator(model: keras.Model) -> Evaluator:
    """Return the `Evaluator` of a model, shared by all callers to share what it compiled; the last two are cached."""
    return Evaluator(model)

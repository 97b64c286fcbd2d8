"""Score every model in the same way: sums of token losses, divided by the tokens, over a whole text.

    chunked@T   every non-overlapping window of T tokens, each from the zero state or the empty cache: `val_loss`
    streaming   the text from start to end: `val_loss_streaming`. A recurrent model carries its state. A model with a
                context length C sees windows of C that move by C / 2: every token counts once, and past the first C
                it has at least C / 2 tokens before it

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
from keras_seq.evaluation.streaming import (
    DynamicEvaluation,
    ValidationSample,
    dynamic_token_losses,
    independent_losses,
    num_parts,
    num_rows,
    streaming_losses,
)
from keras_seq.generation.uncached_model import UncachedModel
from keras_seq.layers.introspection import vocabulary_size
from keras_seq.ops import tensor_checks
from keras_seq.ops.compiled import compiled
from keras_seq.ops.dispatch import divide_rows
from keras_seq.tracking.tracker import track_progress

MIN_CONTEXT = 128  # tokens, at least, that a model reads before a stretch of a sample
CHUNK_LENGTH = 256  # tokens per call and row of a model that carries its state
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
    """Hold a sum of token losses and the number of tokens.

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


def word_perplexity(loss_per_character: float, text: str) -> float | None:
    """Return exp(loss of the text / its words), where words are separated by white space."""
    words = len(text.split())
    loss_per_word = loss_per_character * len(text) / words if words else math.inf
    return math.exp(loss_per_word) if loss_per_word < MAX_LOSS_PER_WORD else None


class Evaluator:
    """Score one model; it is compiled once for all evaluations.

    Args:
        model: A `LanguageModel`; or any causal `keras.Model` from ids `[B, T]` to logits `[B, T, V]`. Such a model
            carries no state: for the streaming loss, windows of its length, or of 1,024 if it takes any length, slide
            over the text.
        batch_size: Independent windows scored at a time.

    Raises:
        ValueError: If the model is not callable or `batch_size` is not an integer of at least 1; from the methods, if
            ids are not integers `[N]` below V, or fewer than a window and one more.
    """

    def __init__(self, model: keras.Model, batch_size: int = 64):
        if not callable(model):
            raise ValueError(f"model={model!r}; expected a LanguageModel.")
        self.model = model
        self.batch_size = checks.positive_integer("batch_size", batch_size)
        # an encoder-decoder, whose state begins with a source, has no context_length
        self._carries = all(hasattr(model, name) for name in ("get_initial_state", "context_length"))
        self._independent = compiled(
            lambda x, y: token_losses(model(divide_rows(x), training=False), y), model, reduce_retracing=True
        )
        self._step = compiled(self._stateful_step, model)
        # With one row, most of the time is the overhead of the loop. XLA halves it if the length is past those that
        # kernels unroll, and compiles for one length: a shorter text runs without it.
        self._xla_step = compiled(self._stateful_step, model, jit_compile=True)

    def _stateful_step(self, x, y, state):
        logits, state = self.model(x, state=state, training=False, return_state=True)
        return token_losses(logits, y), state

    @functools.cached_property
    def _uncached(self):
        return UncachedModel(self.model)

    @property
    def vocabulary_size(self) -> int | None:
        """Return V; None if a model that can step does not have it."""
        return vocabulary_size(self.model) if self._carries else self._uncached.vocabulary_size

    @property
    def _context(self):
        """Return the length of the windows that slide over a text; None if the model carries its state instead."""
        return self.model.context_length if self._carries else self._uncached.context_length or DEFAULT_WINDOW

    def chunked_loss(self, ids, sequence_length: int, sample: ValidationSample | None = None) -> LossSum:
        """Return the loss over disjoint windows, each from the zero state: that of `chunked_token_losses`."""
        return LossSum.from_losses(self.chunked_token_losses(ids, sequence_length, sample))

    def chunked_token_losses(self, ids, sequence_length: int, sample: ValidationSample | None = None) -> np.ndarray:
        """Return the token losses of disjoint windows; their mean over the windows is the loss by position.

        Args:
            ids: Integers `[N]`; those after the last whole window are not scored.
            sequence_length: T, tokens of a window.
            sample: The windows to score, of `sample_windows(ids, sequence_length, ...)`; by default all.

        Returns:
            float32 `[windows, T]`, in nats.
        """
        ids, length = self._checked(ids), checks.positive_integer("sequence_length", sequence_length)
        windows = (len(ids) - 1) // length
        if windows < 1:
            raise ValueError(f"{len(ids)} ids; expected at least {length + 1} with sequence_length={length}.")
        starts = np.arange(windows) * length if sample is None else sample.window_starts
        rows = ids[starts[:, None] + np.arange(length + 1)]
        return self.independent_token_losses(rows[:, :-1], rows[:, 1:])

    def independent_token_losses(self, x, y) -> np.ndarray:
        """Return the token losses of independent windows, each from the zero state.

        Args:
            x: Ids `[windows, T]`.
            y: Targets `[windows, T]`: the ids after those of x.

        Returns:
            float32 `[windows, T]`, in nats.
        """
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        if (shared := _SHARED_LOSSES.get()) is None:
            return self._windows(x, y, x.size + 1)
        key = (self, x.shape, hashlib.sha256(x.tobytes() + y.tobytes()).digest())
        if key not in shared:
            shared[key] = self._windows(x, y, x.size + 1)
        return shared[key]

    def streaming_loss(self, ids, chunk_length: int = CHUNK_LENGTH, chunked: np.ndarray | None = None) -> LossSum:
        """Return the loss over the text from start to end: that of `streaming_token_losses`."""
        return LossSum.from_losses(self.streaming_token_losses(ids, chunk_length, chunked))

    def streaming_token_losses(
        self, ids, chunk_length: int = CHUNK_LENGTH, chunked: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the token losses of a text from start to end; every id except the first is predicted once.

        Args:
            ids: Integers `[N]`.
            chunk_length: Tokens per call and row of a model that carries its state.
            chunked: `chunked_token_losses` of the same ids and weights. Where T is the context length, half of the
                windows of the streaming loss are among them and are not scored again.

        Returns:
            float32 `[N - 1]`, in nats.
        """
        ids, chunk_length = self._checked(ids, 2), checks.positive_integer("chunk_length", chunk_length)
        if self._context is None:
            parts = num_parts(self.model, len(ids), chunk_length)
            step = self._xla_step if parts == 1 and len(ids) > chunk_length else self._step
            return streaming_losses(step, self.model.get_initial_state, ids, min(chunk_length, len(ids) - 1), parts)
        known, length = {}, min(self._context, len(ids) - 1)
        if chunked is not None and chunked.shape == ((len(ids) - 1) // length, length):
            known = dict(zip(range(0, len(ids) - 1, length), chunked, strict=False))
        return self._sliding(ids[None], np.zeros(1, int), known)[0]

    def dynamic_token_losses(self, ids, adapt: DynamicEvaluation) -> np.ndarray:
        """Return the token losses of a text from start to end by a model that learns from what it has scored.

        Args:
            ids: Integers `[N]`.
            adapt: How it learns; afterwards its weights are what they were.

        Returns:
            float32 `[N - 1]`, in nats.

        Raises:
            ValueError: If the model is in an exported file, or nothing in it is trained.
        """
        ids = self._checked(ids, 2)
        if not isinstance(adapt, DynamicEvaluation):
            raise ValueError(f"adapt={adapt!r}; expected a DynamicEvaluation.")
        if not isinstance(self.model, keras.Model):
            raise ValueError(f"{self.model!r} cannot learn while it scores; expected a model of Keras.")
        if not self.model.trainable_variables:
            raise ValueError(f"{self.model.name} has no trainable weights; expected some, to learn while it scores.")
        fixed_length = None if self._carries else self._uncached.fixed_length
        return dynamic_token_losses(self.model, ids, adapt, self._context, fixed_length)

    def stretch_token_losses(self, ids, sample: ValidationSample, chunked: np.ndarray | None = None) -> np.ndarray:
        """Return streaming losses of the stretches of a sample.

        A model that carries its state reads each stretch from a zero state max(128, T) tokens before it, or at the
        start of the text. Windows of a model with a context length C move by C / 2, the first one from C / 2 tokens
        before the stretch. The tokens before it are read and not scored.

        Args:
            ids: The text, integers `[N]`.
            sample: Of `sample_windows(ids, ...)`.
            chunked: `chunked_token_losses` of the sample. Where T is the context length, half of the windows of the
                streaming loss are among them and are not scored again.

        Returns:
            float32 `[K, length]`, in nats.
        """
        ids, context = self._checked(ids), self._context
        before = max(MIN_CONTEXT, sample.sequence_length) if context is None else context // 2
        length = min(max(before + sample.length, context or 0), len(ids) - 1)  # of a row, tokens before it included
        starts = np.maximum(0, sample.starts + sample.length - length)
        rows = ids[starts[:, None] + np.arange(length + 1)]  # [K, length + 1]
        if context is None:
            chunk_length = min(CHUNK_LENGTH, length)
            size = num_rows(chunk_length, self.vocabulary_size)
            losses = independent_losses(self._step, self.model.get_initial_state, rows, chunk_length, size)
        else:
            known = {} if chunked is None else dict(zip(sample.window_starts.tolist(), chunked, strict=True))
            losses = self._sliding(rows, starts, known)
        scored = (sample.starts - starts)[:, None] + np.arange(sample.length)
        return np.take_along_axis(losses, scored, axis=1)

    def _checked(self, ids, at_least=0):
        """Return the ids as an array `[N]`, checked to be below V if that is known."""
        ids = np.asarray(ids)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(f"ids of type {ids.dtype} and shape {ids.shape}; expected integers [N].")
        size = vocabulary_size(self.model)
        if size is not None:
            tensor_checks.ids_below("ids", ids, size)
        if len(ids) < at_least:
            raise ValueError(f"{len(ids)} ids; expected at least {at_least}.")
        return ids

    def _sliding(self, rows, row_starts, known):
        """Return the losses `[K, N - 1]` of rows `[K, N]` by windows that move by half of their length.

        A row starts at `row_starts` in the text. An id counts in the first window that reaches it. `known` has losses
        of windows by their start in the text; those of the same length are not scored again.
        """
        score = self._independent
        if not self._carries:
            tensor_checks.ids_below("ids", rows, self.vocabulary_size)
            score = lambda x, y: token_losses(self._uncached.logits(x), y)  # noqa: E731
        count = rows.shape[1] - 1
        length = min(self._context, count)
        last = count - length  # where the last window starts, so that it ends with the row
        offsets = np.array([*range(0, last, max(1, length // 2)), last])
        starts = (row_starts[:, None] + offsets).reshape(-1).tolist()
        windows = rows[:, offsets[:, None] + np.arange(length + 1)].reshape(-1, length + 1)  # [K windows, length + 1]
        is_known = np.array([start in known and len(known[start]) == length for start in starts])
        losses = np.empty((len(starts), length), "float32")
        for n in np.flatnonzero(is_known):
            losses[n] = known[starts[n]]
        if not is_known.all():
            new = windows[~is_known]
            losses[~is_known] = self._windows(new[:, :-1], new[:, 1:], rows.size, score)
        first_new = np.concatenate([[0], offsets[:-1] + length - offsets[1:]])  # of each window, what none reached
        is_first = np.arange(length) >= first_new[:, None]
        return losses.reshape(len(rows), len(offsets), length)[:, is_first]

    def _windows(self, x, y, total, score=None):
        """Return the losses of windows `[windows, T]`; `total` tokens are shown as the size of the text."""
        score, size, parts = score or self._independent, min(self.batch_size, len(x)), []
        for start in track_progress(range(0, len(x), size), total):
            first = min(start, len(x) - size)  # a full last batch: another size would be traced
            losses = score(x[first : first + size], y[first : first + size])
            parts.append(ops.convert_to_numpy(losses)[start - first :])
        return np.concatenate(parts)


@functools.lru_cache(maxsize=2)
def get_evaluator(model: keras.Model) -> Evaluator:
    """Return the `Evaluator` of a model, shared by all callers to share what it compiled; the last two are cached."""
    return Evaluator(model)

"""Score a text that a model reads from start to end with its state: in parts at once, or learning from what is scored.

    s_k = state after part k - 1,   s_0 = the initial state,   losses_k, s_{k+1} = model(part k, s_k)

With one row, each position waits until all weights are read. So the parts are the rows of one batch. The first guess
of s_k is the state after the last chunk before part k, read from the initial state. If it differs from the state at the
end of part k - 1, all parts are read again from these ends; if the ends differ again, the model does not forget, and
what follows the first two parts is read in one row. The losses are the same but for rounding.

Dynamic evaluation (Krause et al., 2018, arXiv:1709.07432): while it scores, the model learns.

    for each segment of the text, from start to end:
        losses of the segment, by the weights w
        w <- w - learning_rate gradient / RMS of the gradients so far        of the mean loss of the segment, by Adam
        w <- w + decay (w_0 - w)                                             w_0: the weights before the text

No token is seen before it is scored. What repeats in a text, such as names or a style, costs less after a while. A
model that carries its state has segments of `segment_length` tokens; the gradient goes back to the start of one. With a
context length, a segment is a window that moves by half, as in the streaming loss. The weights are put back at the end.
The defaults were chosen for LSTMs on text held out from tiny Shakespeare's training split.
"""

import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
from keras import ops, tree

from keras_seq import checks, random_draws
from keras_seq.evaluation.losses import TokenCrossEntropy, token_losses
from keras_seq.layers.base.state import tensors_in_order
from keras_seq.layers.introspection import iter_layers, vocabulary_size
from keras_seq.ops.compiled import compiled
from keras_seq.tracking.tracker import track_progress

MAX_PARTS = 16
MAX_LOGITS = 2**26  # of a call
TOLERANCE = 32 * np.finfo("float32").eps  # of states: rounding alone


def num_parts(model: keras.Model, num_ids: int, chunk_length: int) -> int:
    """Return in how many parts to read a text; 1 in half precision, or if a state is not rows of floats."""
    parts = tree.flatten(model.get_initial_state(2))
    rows = all(part.shape[:1] == (2,) and keras.backend.standardize_dtype(part.dtype) == "float32" for part in parts)
    layers = iter_layers(model) if isinstance(model, keras.Layer) else ()
    if not rows or any(layer.compute_dtype in ("bfloat16", "float16") for layer in layers):
        return 1
    return max(1, min(num_rows(chunk_length, vocabulary_size(model)), num_ids // (2 * chunk_length)))


def num_rows(chunk_length: int, vocabulary_size: int | None) -> int:
    """Return how many rows of a chunk to read in a call; 1 if the size of its logits is unknown."""
    return max(1, min(MAX_PARTS, MAX_LOGITS // (chunk_length * (vocabulary_size or MAX_LOGITS))))


def streaming_losses(
    step: Callable, get_initial_state: Callable, ids: np.ndarray, chunk_length: int, parts: int
) -> np.ndarray:
    """Return the losses `[N - 1]` of ids `[N]`, all but the first, each given all ids before it."""
    count, length = len(ids) - 1, chunk_length * -(-(len(ids) - 1) // (parts * chunk_length))  # of all, of a part
    padded = np.pad(ids, (0, parts * length - count))
    x, y = padded[:-1].reshape(parts, length), padded[1:].reshape(parts, length)
    used, initial = -(-count // length), get_initial_state(parts)  # the parts after the first `used` are padding

    def ends_as_starts(ends):
        """Return the state at the start of each part, given those at the ends."""
        return tree.map_structure(lambda first, end: ops.concatenate([first[:1], end[:-1]]), initial, ends)

    starts = initial
    if parts > 1:
        starts = ends_as_starts(step(x[:, -chunk_length:], y[:, -chunk_length:], initial)[1])
    for reading in range(2):  # part 0 starts rightly in the first one, part 1 in the second
        chunks = range(0, length, chunk_length)
        chunks = track_progress(chunks, len(ids)) if reading == 0 else chunks
        losses, ends = _read(step, x, y, starts, chunks, chunk_length)
        if parts == 1 or _equal(starts, ends_as_starts(ends), used):
            return losses.reshape(-1)[:count]
        starts = ends_as_starts(ends)
    if used > 2:
        first, x, y = losses[:2].reshape(1, -1), x[2:].reshape(1, -1), y[2:].reshape(1, -1)
        length, chunk_length = x.shape[1], (parts - 2) * chunk_length  # as many calls, each as large
        chunks = track_progress(range(0, length, chunk_length), length)
        rest, _ = _read(step, x, y, tree.map_structure(lambda start: start[2:3], starts), chunks, chunk_length)
        losses = np.concatenate([first, rest], axis=1)
    return losses.reshape(-1)[:count]


def independent_losses(
    step: Callable, get_initial_state: Callable, rows: np.ndarray, chunk_length: int, batch_size: int
) -> np.ndarray:
    """Return the losses `[K, N - 1]` of texts `[K, N]`, each read from the initial state."""
    (num_rows, count), losses = rows[:, 1:].shape, []
    padded = np.pad(rows, ((0, -num_rows % batch_size), (0, -count % chunk_length)))
    chunks = range(0, count, chunk_length)
    for first in track_progress(range(0, num_rows, batch_size), rows.size):
        batch = padded[first : first + batch_size]
        losses.append(_read(step, batch[:, :-1], batch[:, 1:], get_initial_state(batch_size), chunks, chunk_length)[0])
    return np.concatenate(losses)[:num_rows, :count]


def _read(step, x, y, state, chunks, chunk_length):
    """Return the losses of rows that are read in chunks, given where these start, and the state at the rows' ends."""
    losses = []
    for start in chunks:
        chunk = slice(start, start + chunk_length)
        part, state = step(x[:, chunk], y[:, chunk], state)
        losses.append(ops.convert_to_numpy(part))
    return np.concatenate(losses, axis=1), state


def _equal(state, other, rows):
    """Return whether the first rows of two states differ by rounding alone."""
    pairs = zip(tree.flatten(state), tensors_in_order(other, state), strict=True)
    arrays = ([ops.convert_to_numpy(x)[:rows] for x in pair] for pair in pairs)
    return all(np.allclose(*pair, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True) for pair in arrays)


# The part of a validation text that is scored during training, chosen so that it speaks for all of the text.
#
#     the text        |.....##...|..##......|......##..|##........|....##....|      K equal parts, a stretch in each
#     a stretch ##    u windows of T tokens, one after the other                    at most 128 stretches
#
# The places are drawn from the digest of the ids: all models and seeds that are trained on a text are scored on the
# same stretches. `val_loss_sample` is of their windows, each from the zero state; `val_loss_streaming_sample` is of
# the same tokens, each stretch read from a zero state some tokens before it: `Evaluator.stretch_token_losses`.

MAX_STRETCHES = 128


@dataclasses.dataclass(frozen=True, eq=False)
class ValidationSample:
    """Hold where the stretches of a sample start and how long they are."""

    starts: np.ndarray
    length: int
    sequence_length: int

    @property
    def tokens(self) -> int:
        """Return the number of tokens that are scored."""
        return len(self.starts) * self.length

    @property
    def window_starts(self) -> np.ndarray:
        """Return where each window starts, increasing integers `[windows]`."""
        return (self.starts[:, None] + np.arange(0, self.length, self.sequence_length)).reshape(-1)

    @property
    def targets(self) -> np.ndarray:
        """Return the positions of the tokens that are predicted, integers `[tokens]`: the first one is `starts + 1`."""
        return (self.starts[:, None] + 1 + np.arange(self.length)).reshape(-1)

    def standard_error(self, token_losses: np.ndarray) -> float:
        """Return the standard error of the sample's mean loss, taken as if its stretches were drawn anywhere."""
        size = self.length // self.sequence_length
        whole = token_losses[: len(token_losses) // size * size]
        units = whole.reshape(-1, size * token_losses.shape[1]).mean(axis=1, dtype="float64")
        variance = units.var(ddof=1) if len(units) > 1 else 0.0
        return math.sqrt(variance / len(self.starts) * max(0.0, 1 - self.tokens / token_losses.size))


def sample_windows(ids: np.ndarray, sequence_length: int, num_windows: int) -> ValidationSample | None:
    """Spread windows evenly over a text, at places drawn from its digest."""
    checks.positive_integer("sequence_length", sequence_length)
    checks.positive_integer("num_windows", num_windows)
    ids = np.asarray(ids)
    windows = (len(ids) - 1) // sequence_length
    if windows <= num_windows:
        return None
    size = -(-num_windows // MAX_STRETCHES)
    edges = spread_edges(windows, num_windows // size)
    free = np.diff(edges) - size + 1
    places = random_draws.uniform((len(free),), _seed(ids), 0, "stretches")
    return ValidationSample(
        (edges[:-1] + (places * free).astype(int)) * sequence_length, size * sequence_length, sequence_length
    )


def sample_rows(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """Spread a sample evenly over rows, one in each of `num_rows` equal parts, at places drawn from their digest."""
    edges = spread_edges(len(rows), num_rows)
    places = random_draws.uniform((num_rows,), _seed(rows), 0, "stretches")
    return edges[:-1] + (places * np.diff(edges)).astype(int)


def spread_edges(total: int, parts: int) -> np.ndarray:
    """Return the edges of equal parts of `range(total)`, integers `[parts + 1]`."""
    return np.arange(parts + 1) * total // parts


def _seed(ids):
    digest = hashlib.sha256(np.ascontiguousarray(ids, "<i8").tobytes()).digest()
    return int.from_bytes(digest[:7], "little")


PADDING = -1  # a target that does not count


@dataclasses.dataclass(frozen=True)
class DynamicEvaluation:
    """Configure how a model learns from a text while it scores it.

    Raises:
        ValueError: A value is out of its range.
    """

    learning_rate: float = 1e-3
    """Learning rate of Adam without momentum; 0 scores without learning."""
    decay: float = 3e-3
    """How much nearer each step brings the weights to those before the text; at least 0, at most 1."""
    segment_length: int = 64
    """Tokens of a segment, for a model that carries its state."""

    def __post_init__(self):
        """Check the fields."""
        checks.number("learning_rate", self.learning_rate, min_value=0)
        checks.number("decay", self.decay, min_value=0, max_value=1)
        checks.positive_integer("segment_length", self.segment_length)


@keras.saving.register_keras_serializable(package="keras_seq")
class Learner(keras.Model):
    """A model from ids, and the tensors of a state, to logits; Keras trains it. It is not built: the model is."""

    def __init__(self, model, structure):
        super().__init__()
        self.language_model, self.structure = model, structure

    def call(self, inputs):
        """Compute logits `[1, T, V]` of `[ids [1, T], *tensors of the state]`."""
        ids, *tensors = inputs
        state = {} if self.structure is None else {"state": tree.pack_sequence_as(self.structure, tensors)}
        return self.language_model(ids, **state, training=False)


@keras.saving.register_keras_serializable(package="keras_seq")
class DenseAdam(keras.optimizers.Adam):
    """Adam of whole gradients; TensorFlow's of an embedding has a row for each id, which Keras would square alone."""

    def apply(self, grads, trainable_variables=None):
        """Update the variables."""
        grads = [grad if grad is None else ops.zeros(grad.shape, grad.dtype) + grad for grad in grads]
        super().apply(grads, trainable_variables)


def dynamic_token_losses(
    model: keras.Model,
    ids: np.ndarray,
    adapt: DynamicEvaluation,
    context_length: int | None,
    fixed_length: int | None = None,
):
    """Return the losses of all ids but the first, float32 `[N - 1]`, each by what the model has learned before it.

    The context length is that of the windows; None for a model that carries its state. The fixed length is that of the
    only rows that a model takes, if there is one.
    """
    with restored(model.variables):
        if context_length is None:
            segments = _segments(model, ids, adapt)
        else:
            length = min(context_length, len(ids) - 1)
            segments = _windows(model, ids, adapt, length, fixed_length or length)
        return np.concatenate([*segments])


@contextlib.contextmanager
def restored(variables: Sequence[keras.Variable]) -> Iterator[None]:
    """Put the values of variables back after a `with` block; each copy stays where its variable is."""
    values = [ops.copy(variable) for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


def _segments(model, ids, adapt):
    """Yield the losses of each segment of a model that carries its state."""

    def scored(x, y, state):
        logits, state = model(x, state=state, training=False, return_state=True)
        return token_losses(logits, y), state

    score, state = compiled(scored, model), model.get_initial_state(1)
    learn, length = _learning(model, adapt, state), min(adapt.segment_length, len(ids) - 1)
    for start in track_progress(range(0, len(ids) - 1, length), len(ids)):
        part = ids[start : start + length + 1]
        missing = length + 1 - len(part)
        x, y = np.pad(part[:-1], (0, missing))[None], np.pad(part[1:], (0, missing), constant_values=PADDING)[None]
        losses, new_state = score(x, y, state)
        yield ops.convert_to_numpy(losses)[0, : len(part) - 1]
        learn(x, y, state)
        state = new_state


def _windows(model, ids, adapt, length, row_length):
    """Yield the new losses of each window; windows move by half, and the last one ends with the text."""
    padding = (0, 0), (0, row_length - length)
    score = compiled(lambda x, y: token_losses(model(x, training=False), y), model)
    learn, last, end = _learning(model, adapt, None), len(ids) - 1 - length, 0
    for start in track_progress([*range(0, last, max(1, length // 2)), last], len(ids)):
        x = np.pad(ids[None, start : start + length], padding)
        y = np.pad(ids[None, start + 1 : start + length + 1], padding, constant_values=PADDING)
        yield ops.convert_to_numpy(score(x, y))[0, end - start : length]
        end = start + length
        learn(x, y, None)


def _learning(model, adapt, state):
    """Return a function that takes one step of learning from x, y and the state before them."""
    if not adapt.learning_rate:
        return lambda x, y, state: None
    first, learner, before = state, Learner(model, state), [ops.convert_to_numpy(v) for v in model.trainable_variables]
    learner.built = True
    learner.compile(DenseAdam(adapt.learning_rate, beta_1=0.0), TokenCrossEntropy())

    def learn(x, y, state):
        learner.train_on_batch([x, *([] if state is None else tensors_in_order(state, first))], y)
        if adapt.decay:
            for variable, value in zip(model.trainable_variables, before, strict=True):
                variable.assign(variable + adapt.decay * (value - variable))

    return learn

"""Positions added to the input: sines and cosines (Vaswani et al., 2017) or learned vectors (Gehring et al., 2017).

    e[p, 2i] = sin(p / 10000^(2i / D)),   e[p, 2i + 1] = cos(p / 10000^(2i / D)),   y = x + e

`RotaryPositions` and `AlibiPositions`, which act inside attention, are in `relative_positions.py`.
"""

import numbers

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import Layer, same_shape
from keras_seq.layers.base.state import check_state
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import compute_positions, count_elements
from keras_seq.ops.tensor_checks import at_least_float32, where_valid

MAX_START = 2**24  # float32, in which angles are computed, represents all integers up to here


def sinusoids(positions, dim: int, base: float = 10_000.0, dtype: str = "float32"):
    """Compute sines (even features) and cosines (odd features) of positions of any shape, with one more axis, `dim`."""
    frequencies = [base ** (-2 * i / dim) for i in range((dim + 1) // 2)]
    angles = ops.expand_dims(ops.cast(positions, dtype), -1) * ops.convert_to_tensor(frequencies, dtype)
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [..., ceil(dim / 2), 2]
    flat = ops.reshape(pairs, (*ops.shape(positions), 2 * len(frequencies)))
    return flat[..., :dim]


def check_start(start, x):
    """Return `start` as an int, or as an int32 tensor, scalar or `[B]`, that is -1 where it is out of range."""
    if not hasattr(start, "shape"):
        if isinstance(start, bool) or not isinstance(start, numbers.Integral) or not 0 <= start <= MAX_START:
            raise ValueError(f"start={start!r}; expected an integer from 0 to 2**24, or an integer tensor.")
        return int(start)
    start = tensor_checks.integers("start", start)
    if len(start.shape):
        tensor_checks.same_axes("start", start, x, rank=1)
    return ops.where(start <= MAX_START, start, -1)


class AdditivePositions(Layer):
    """Base class of layers that add a vector by position; it counts the positions."""

    loops_over_positions = False
    compute_output_shape = same_shape

    def position_vectors(self, positions, length, start):
        """Compute the vectors to add, `[T, D]` or `[B, T, D]`, for positions `[T]` or `[B, T]`; subclasses define it.

        `length` is T, or None if unknown, and `start` the position of the first element.
        """
        raise NotImplementedError

    def get_initial_state(self, batch_size, capacity: int | None = None):
        """Return the number of positions before the first: zeros, int32 `[B]`; layers with a cache need a capacity."""
        return ops.zeros((batch_size,), "int32")

    def call(
        self, inputs, start=0, mask=None, inputs_mask=None, state=None, return_state: bool = False, reset_mask=None
    ):
        """Add the vectors; the arguments are documented in the subclasses."""
        if state is not None:
            if not (isinstance(start, int) and start == 0):
                raise ValueError(f"start={start} and a state were passed; expected only one of them.")
            check_state(self.name, state, list(inputs.shape[:1]))
            start = state
        x, mask = self._valid_inputs(inputs, inputs_mask if mask is None else mask)
        start = check_start(start, inputs)
        if not isinstance(start, int) and len(start.shape):
            x = tensor_checks.with_axes_of(x, start, rank=1)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        positions = compute_positions(ops.shape(x)[1], mask, start, reset_mask)
        vectors = self.position_vectors(positions, x.shape[1], start)
        if not isinstance(start, int):
            vectors = ops.where(ops.reshape(start, (-1, 1, 1) if len(start.shape) else ()) < 0, float("nan"), vectors)
        y = x + ops.cast(vectors, x.dtype)
        if not return_state:
            return y
        if reset_mask is not None:
            return y, count_elements(ops.shape(x)[1], mask, start, reset_mask)[:, -1]
        count_before = ops.cast(start, "int32") + self.get_initial_state(ops.shape(x)[0])
        if mask is None:
            return y, count_before + ops.shape(x)[1]
        return y, count_before + ops.cast(ops.sum(ops.cast(mask, "int32"), axis=1), "int32")

    def compute_output_spec(self, inputs, *args, return_state: bool = False, **kwargs):
        """Return the spec of the inputs in the compute dtype and, if requested, that of the state."""
        y = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        return (y, keras.KerasTensor(inputs.shape[:1], dtype="int32")) if return_state else y


@keras.saving.register_keras_serializable(package="keras_seq")
class PositionalEncoding(AdditivePositions):
    """Add sines and cosines of the position, for any length and width, without weights.

    ```python
    layer = PositionalEncoding()
    y = layer(x)  # x [B, T, D] -> y [B, T, D]
    y = layer(x[:, 7:], start=7)  # equals layer(x)[:, 7:]
    ```

    Args:
        base: Greater than 0; the longest wavelength is about 2π · base positions.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, D]`.
        start: Position of the first element: an int, or an int tensor, scalar or `[B]`. Below 0 or above 2**24 an int
            raises an error, and a tensor gives NaN.
        mask: `[B, T]`, true at non-padding elements. Padding, wherever it is, does not count as a position.
        inputs_mask: What Keras passes for `mask` when `start` is a tensor.
        state: From `get_initial_state` or the previous call, instead of `start`.
        return_state: Whether to return the state too: the number of positions so far, int32 `[B]`.
        reset_mask: `[B, T]`, true where another document begins, at position 0.

    Angles are float32 in every precision, so that positions 256 and 257 stay distinct in bfloat16.

    Raises:
        ValueError: If an argument is out of its range, or both `start` and a state are passed.
    """

    def __init__(self, base: float = 10_000.0, **kwargs):
        super().__init__(**kwargs)
        self.base = checks.positive_number("base", base)

    def build(self, inputs_shape):
        """Read D from the shape of the inputs `[B, T, D]`."""
        self._dim = self._read_width(inputs_shape)

    def position_vectors(self, positions, length, start):
        """Compute `sinusoids` of the positions."""
        return sinusoids(positions, self._dim, self.base, at_least_float32(self.compute_dtype))


@keras.saving.register_keras_serializable(package="keras_seq")
class LearnedPositions(AdditivePositions):
    """Add a learned vector by position, up to a maximal length.

    ```python
    layer = LearnedPositions(128)
    y = layer(x)  # x [B, T, D], T at most 128 -> y [B, T, D]
    y = layer(x[:, 7:], start=7)  # equals layer(x)[:, 7:]
    ```

    Args:
        length: Number of positions that have a vector.
        embeddings_initializer: Initializer of the vectors `[length, D]`.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments: Those of `PositionalEncoding`.

    Raises:
        ValueError: If start + T exceeds `length` and both are Python numbers. Where `start` is a tensor, a position
            past the length gives NaN.
    """

    def __init__(self, length: int, embeddings_initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        self.length = checks.positive_integer("length", length)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, inputs_shape):
        """Create the vectors for inputs `[B, T, D]`."""
        dim = self._read_width(inputs_shape)
        self.embeddings = self.add_weight(
            shape=(self.length, dim), initializer=self.embeddings_initializer, name="embeddings"
        )

    def position_vectors(self, positions, length, start):
        """Look up the vectors of the positions, NaN past the length, or raise where that is known."""
        if isinstance(start, int) and length is not None and len(positions.shape) == 1:
            end = start + length
            if end > self.length:
                raise ValueError(
                    f"inputs has positions up to start + T = {end}; expected at most length={self.length}."
                )
            return self.embeddings[start:end]
        is_inside = positions < self.length
        rows = ops.take(self.embeddings, ops.where(is_inside, ops.maximum(positions, 0), 0), axis=0)
        return ops.where(ops.expand_dims(is_inside, -1), rows, float("nan"))


# Embedding of the text segment that a position belongs to (Devlin et al., 2019):  y = x + e[segment].


@keras.saving.register_keras_serializable(package="keras_seq")
class SegmentEmbedding(Layer):
    """Add a learned vector by segment.

    ```python
    layer = SegmentEmbedding(2)
    y = layer(x, segment_ids)  # x [B, T, D], segment_ids [B, T] of 0 and 1 -> y [B, T, D]
    ```

    Args:
        num_segments: Number of segments that have a vector.
        embeddings_initializer: Initializer of the vectors `[num_segments, D]`.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, D]`.
        segment_ids: Integers `[B, T]`, 0 .. num_segments - 1.
        mask: `[B, T]`, true at non-padding positions, or None. Padding counts as zeros, of segment 0. It is passed on.
        inputs_mask: What Keras passes for `mask`.

    Raises:
        ValueError: If an argument is out of its range, the inputs are not `[B, T, D]`, or the segment ids are not
            integers `[B, T]` or are out of range. In compiled code, where they are unknown, one out of range gives NaN.
    """

    loops_over_positions = False
    compute_output_shape = same_shape

    def __init__(self, num_segments: int = 2, embeddings_initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        self.num_segments = checks.positive_integer("num_segments", num_segments)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, inputs_shape, segment_ids_shape=None):
        """Create the vectors for inputs `[B, T, D]`."""
        width = self._read_width(inputs_shape)
        self.embeddings = self.add_weight(
            shape=(self.num_segments, width), initializer=self.embeddings_initializer, name="embeddings"
        )

    def call(self, inputs, segment_ids, mask=None, inputs_mask=None):
        """Add the vectors; the arguments are documented in the class."""
        segment_ids = tensor_checks.integers("segment_ids", segment_ids)
        tensor_checks.same_axes("segment_ids", segment_ids, inputs, rank=2)
        x, mask = self._valid_inputs(inputs, inputs_mask if mask is None else mask)
        segment_ids = where_valid(mask, segment_ids, 0)
        tensor_checks.ids_below("segment_ids", segment_ids, self.num_segments)
        x = tensor_checks.with_axes_of(x, segment_ids, rank=2)
        is_valid = ops.logical_and(segment_ids >= 0, segment_ids < self.num_segments)
        rows = ops.take(self.embeddings, ops.where(is_valid, segment_ids, 0), axis=0)
        return x + ops.cast(ops.where(ops.expand_dims(is_valid, -1), rows, float("nan")), x.dtype)

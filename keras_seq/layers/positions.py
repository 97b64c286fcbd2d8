"""Positions added to the input: sines and cosines (Vaswani et al., 2017) or learned vectors (Gehring et al., 2017).

    e[p, 2i] = sin(p / 10000^(2i / D)),   e[p, 2i + 1] = cos(p / 10000^(2i / D)),   y = x + e

`RotaryPositions` and `AlibiPositions`, which act inside attention, are in `rotary.py` and `alibi.py`.
"""

import numbers

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.masks import compute_positions
from keras_seq.layers.precision import at_least_float32
from keras_seq.layers.state_checks import check_state

LARGEST = 2**24  # of a start: float32, in which angles are computed, tells whole numbers apart up to here


def sinusoids(positions, width, base=10_000.0, dtype="float32"):
    """`positions` of any shape -> `[..., width]`, sines at even places and cosines at odd ones."""
    frequencies = [base ** (-2 * i / width) for i in range((width + 1) // 2)]
    angles = ops.expand_dims(ops.cast(positions, dtype), -1) * ops.convert_to_tensor(frequencies, dtype)
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [..., ceil(width / 2), 2]
    flat = ops.reshape(pairs, (*ops.shape(positions), 2 * len(frequencies)))
    return flat[..., :width]


def checked_start(start, x):
    """`start` as an int, or as an int32 tensor, scalar or `[B]`, that is -1 where it is out of range."""
    if not hasattr(start, "shape"):
        if isinstance(start, bool) or not isinstance(start, numbers.Integral) or not 0 <= start <= LARGEST:
            raise ValueError(f"start={start!r}; expected a whole number from 0 to 2**24, or an integer tensor.")
        return int(start)
    start = checks.integers("start", start)
    if len(start.shape):
        checks.same_axes("start", start, x, rank=1)
    return ops.where(start <= LARGEST, start, -1)


class AdditivePositions(keras.layers.Layer):
    """What the layers that add a vector by position share: counting the positions."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def position_vectors(self, positions, length, start):
        """The vectors `[T, D]` or `[B, T, D]` for `positions` (`[T]` or `[B, T]`), float32 at least."""
        raise NotImplementedError

    def get_initial_state(self, batch_size, capacity=None):
        """The positions before the first: zeros, int32 `[B]`. A count needs no capacity."""
        return ops.zeros((batch_size,), "int32")

    def call(self, x, start=0, mask=None, x_mask=None, state=None, return_state=False):
        """See the class."""
        checks.real("x", x)
        if state is not None:
            if not (isinstance(start, int) and start == 0):
                raise ValueError(f"start={start} and a state were given; expected one of them to say where x starts.")
            check_state(self.name, state, list(x.shape[:1]))
            start = state
        x, start = ops.cast(x, self.compute_dtype), checked_start(start, x)
        if not isinstance(start, int) and len(start.shape):
            x = checks.with_axes_of(x, start, rank=1)
        x, mask = checks.masked("mask", x, x_mask if mask is None else mask)
        positions = compute_positions(ops.shape(x)[1], mask, start)
        vectors = self.position_vectors(positions, x.shape[1], start)
        if not isinstance(start, int):
            vectors = ops.where(ops.reshape(start, (-1, 1, 1) if len(start.shape) else ()) < 0, float("nan"), vectors)
        y = x + ops.cast(vectors, x.dtype)
        if not return_state:
            return y
        before = ops.cast(start, "int32") + self.get_initial_state(ops.shape(x)[0])
        count = ops.shape(x)[1] if mask is None else ops.sum(ops.cast(mask, "int32"), axis=1)
        return y, before + ops.cast(count, "int32")

    def compute_output_shape(self, x_shape):
        """`[B, T, D]`, as it came."""
        return tuple(x_shape)

    def compute_output_spec(self, x, *args, return_state=False, **kwargs):
        """As x, in the compute dtype; and the count."""
        y = keras.KerasTensor(x.shape, dtype=self.compute_dtype)
        return (y, keras.KerasTensor(x.shape[:1], dtype="int32")) if return_state else y


@keras.saving.register_keras_serializable(package="keras_seq")
class PositionalEncoding(AdditivePositions):
    """Adds sines and cosines of the position; any length, any width, no weights.

    ```python
    layer = PositionalEncoding()
    y = layer(x)  # x [B, T, D] -> y [B, T, D]
    y = layer(x[:, 7:], start=7)  # equals layer(x)[:, 7:]
    ```

    Args:
        base: the slowest pair has the wavelength 2π · base positions.

    Call arguments:
        x: `[B, T, D]`.
        start: the position of the first element: an int, or an int tensor, scalar or `[B]`. Below 0 or past 2**24 an
            int is refused, and a tensor gives NaN.
        mask: `[B, T]`, true where x is real. Padding, wherever it lies, does not count as a position.
        x_mask: what Keras passes for `mask` when `start` is a tensor.
        state: from `initial_state` or the call before, instead of `start`.
        return_state: also return the state, the number of positions up to here, int32 `[B]`.

    Angles are float32 whatever the precision, so that positions 256 and 257 stay distinct in bfloat16.
    """

    def __init__(self, base=10_000.0, **kwargs):
        super().__init__(**kwargs)
        self.base = checks.positive_number("base", base)

    def build(self, x_shape):
        """Takes the width from `x [B, T, D]`."""
        self._width = checks.sequence_shape("x", x_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: self._width})

    def position_vectors(self, positions, length, start):
        """`sinusoids` of the positions."""
        return sinusoids(positions, self._width, self.base, at_least_float32(self.compute_dtype))

    def get_config(self):
        """The arguments."""
        return {**super().get_config(), "base": self.base}


@keras.saving.register_keras_serializable(package="keras_seq")
class LearnedPositions(AdditivePositions):
    """Adds a learned vector by position, up to a length.

    ```python
    layer = LearnedPositions(128)
    y = layer(x)  # x [B, T, D], T at most 128 -> y [B, T, D]
    y = layer(x[:, 7:], start=7)  # equals layer(x)[:, 7:]
    ```

    Args:
        length: the number of positions that have a vector.
        embeddings_initializer: of the vectors `[length, D]`.

    Call arguments:
        x: `[B, T, D]`.
        start: the position of the first element: an int, or an int tensor, scalar or `[B]`. Below 0 or past 2**24 an
            int is refused, and a tensor gives NaN.
        mask: `[B, T]`, true where x is real. Padding, wherever it lies, does not count as a position.
        x_mask: what Keras passes for `mask` when `start` is a tensor.
        state: from `initial_state` or the call before, instead of `start`.
        return_state: also return the state, the number of positions up to here, int32 `[B]`.

    Raises:
        ValueError: where start + T exceeds the length and both are Python numbers. Where `start` is a tensor, a
            position past the length gives NaN.
    """

    def __init__(self, length, embeddings_initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        self.length = checks.positive_integer("length", length)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, x_shape):
        """Makes the vectors for `x [B, T, D]`."""
        width = checks.sequence_shape("x", x_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        self.embeddings = self.add_weight(
            shape=(self.length, width), initializer=self.embeddings_initializer, name="embeddings"
        )

    def position_vectors(self, positions, length, start):
        """Rows of the embeddings."""
        if isinstance(start, int) and length is not None and len(positions.shape) == 1:
            end = start + length
            if end > self.length:
                raise ValueError(f"x has positions up to start + T = {end}; expected at most length={self.length}.")
            return self.embeddings[start:end]
        rows = ops.take(self.embeddings, ops.clip(positions, 0, self.length - 1), axis=0)
        return ops.where(ops.expand_dims(positions < self.length, -1), rows, float("nan"))

    def get_config(self):
        """The arguments."""
        return {
            **super().get_config(),
            "length": self.length,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }

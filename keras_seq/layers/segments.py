"""Which of two texts a position belongs to (Devlin et al., 2019):  y = x + e[segment]."""

import keras
from keras import ops

from keras_seq import checks


@keras.saving.register_keras_serializable(package="keras_seq")
class SegmentEmbedding(keras.layers.Layer):
    """Adds a learned vector by segment.

    ```python
    layer = SegmentEmbedding(2)
    y = layer(x, segments)  # x [B, T, D], segments [B, T] of 0 and 1 -> y [B, T, D]
    ```

    Args:
        num_segments: how many segments have a vector.
        embeddings_initializer: of the vectors `[num_segments, D]`.

    Call arguments:
        x: `[B, T, D]`. Its mask goes on.
        segments: whole numbers `[B, T]`, 0 .. num_segments - 1.

    Raises:
        ValueError: for an argument out of its range, an x that is not `[B, T, D]`, segments that are not integers
            `[B, T]` or are out of range. Inside compiled code, where the segments are not known, one out of range gives
            NaN.
    """

    def __init__(self, num_segments=2, embeddings_initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_segments = checks.positive_integer("num_segments", num_segments)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, x_shape, segments_shape=None):
        """Makes the vectors for `x [B, T, D]`."""
        width = checks.sequence_shape("x", x_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        self.embeddings = self.add_weight(
            shape=(self.num_segments, width), initializer=self.embeddings_initializer, name="embeddings"
        )

    def call(self, x, segments):
        """See the class."""
        checks.real("x", x)
        checks.ids_below("segments", segments, self.num_segments)
        segments = checks.integers("segments", segments)
        checks.same_axes("segments", segments, x, rank=2)
        x = checks.with_axes_of(ops.cast(x, self.compute_dtype), segments, rank=2)
        rows = ops.take(self.embeddings, ops.clip(segments, 0, self.num_segments - 1), axis=0)
        known = ops.logical_and(segments >= 0, segments < self.num_segments)
        return x + ops.cast(ops.where(ops.expand_dims(known, -1), rows, float("nan")), x.dtype)

    def compute_output_shape(self, x_shape, segments_shape=None):
        """`[B, T, D]`, as x came."""
        return tuple(x_shape)

    def get_config(self):
        """The arguments."""
        return {
            **super().get_config(),
            "num_segments": self.num_segments,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }

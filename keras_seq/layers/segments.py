"""Embedding of the text segment that a position belongs to (Devlin et al., 2019):  y = x + e[segment]."""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.layer import Layer
from keras_seq.ops.tensor_checks import where_valid


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

    def __init__(self, num_segments: int = 2, embeddings_initializer="uniform", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_segments = checks.positive_integer("num_segments", num_segments)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, inputs_shape, segment_ids_shape=None):
        """Create the vectors for inputs `[B, T, D]`."""
        width = checks.sequence_shape("inputs", inputs_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        self.embeddings = self.add_weight(
            shape=(self.num_segments, width), initializer=self.embeddings_initializer, name="embeddings"
        )

    def call(self, inputs, segment_ids, mask=None, inputs_mask=None):
        """Add the vectors; the arguments are documented in the class."""
        segment_ids = checks.integers("segment_ids", segment_ids)
        checks.same_axes("segment_ids", segment_ids, inputs, rank=2)
        x = ops.cast(checks.real("inputs", inputs, self.compute_dtype), self.compute_dtype)
        x, mask = checks.masked("mask", x, inputs_mask if mask is None else mask)
        x, segment_ids = where_valid(mask, x), where_valid(mask, segment_ids, 0)
        checks.ids_below("segment_ids", segment_ids, self.num_segments)
        x = checks.with_axes_of(x, segment_ids, rank=2)
        rows = ops.take(self.embeddings, ops.clip(segment_ids, 0, self.num_segments - 1), axis=0)
        is_valid = ops.logical_and(segment_ids >= 0, segment_ids < self.num_segments)
        return x + ops.cast(ops.where(ops.expand_dims(is_valid, -1), rows, float("nan")), x.dtype)

    def compute_output_shape(self, inputs_shape, segment_ids_shape=None) -> tuple:
        """Return the shape of the inputs, `[B, T, D]`."""
        return tuple(inputs_shape)

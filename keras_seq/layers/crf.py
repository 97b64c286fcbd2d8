"""A linear-chain conditional random field (Lafferty et al., 2001) on top of a tagger: scores of pairs of tags.

    log p(y | x) = s_{y_1} + sum over t of x_{t, y_t} + sum over t > 1 of A_{y_{t-1}, y_t} + e_{y_T} - log Z(x)

The layer owns A, s and e. Its output is all that loss, metric and decoder need: `keras_seq.ops.crf`.
"""

import keras
from keras import ops

from keras_seq.layers.base.layer import Layer
from keras_seq.ops import crf, tensor_checks
from keras_seq.ops.tensor_checks import at_least_float32


@keras.saving.register_keras_serializable(package="keras_seq")
class CRF(Layer):
    """Turn scores of tags into scores of pairs of neighboring tags, of which a CRF's probabilities are made.

    ```python
    emissions = keras.layers.Dense(num_tags)(x)  # [B, T, K]
    model = keras.Model(ids, CRF()(emissions))
    model.compile("adam", loss=CRFLoss(), metrics=[ViterbiAccuracy()])  # of keras_seq.evaluation
    model.fit(ids, tags)
    tags, score = viterbi(model.predict(ids))  # the likeliest tags, -1 at padding
    tagger = keras.Model(model.input, ViterbiDecoder()(model.output))  # the same as a model
    crf_marginals(potentials), crf_log_likelihood(potentials, tags)  # [B, T, K], [B]
    ```

    A masked position is skipped: the tags before and after it are neighbors, as in the sequence without it, wherever
    the padding is. The output says itself which positions are padding, so that no loss or metric needs the mask. With
    weights of zeros, which is how it starts, tags do not depend on each other, and the loss is that of a softmax.

    Args:
        initializer: Initializer of the transitions A `[K, K]` and of the scores s, e `[K]` of the first and last tag.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: Emissions `[B, T, K]`, the logits of K tags, K at least 2.
        mask: `[B, T]`, true at non-padding positions.

    Returns:
        Potentials `[B, T, K, K]`, float32 at least under every dtype policy: the score of tag j at t after tag i. That
        of the first tag is in every row i; at padding it is 0 where i = j and -1e30 elsewhere.

    Raises:
        ValueError: If the inputs do not have the shape `[B, T, K]`.
    """

    loops_over_positions = False

    def __init__(self, initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)
        self.autocast = False  # emissions keep their precision

    def build(self, inputs_shape):
        """Create the weights for emissions `[B, T, K]`."""
        num_tags = tensor_checks.sequence_shape("inputs", inputs_shape)
        if num_tags < 2:
            raise ValueError(f"inputs has shape {tuple(inputs_shape)}; expected [B, T, K], K at least 2 tags.")
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: num_tags})
        options = {"initializer": self.initializer, "autocast": False}
        self.transitions = self.add_weight((num_tags, num_tags), name="transitions", **options)
        self.start = self.add_weight((num_tags,), name="start", **options)
        self.end = self.add_weight((num_tags,), name="end", **options)

    def call(self, inputs, mask=None):
        """Return the potentials."""
        dtype = at_least_float32(self.compute_dtype)
        x = ops.cast(tensor_checks.real("inputs", inputs, dtype), dtype)
        x, mask = tensor_checks.masked("mask", x, mask)
        return crf.crf_potentials(x, *(ops.cast(v, dtype) for v in (self.transitions, self.start, self.end)), mask)

    def compute_output_shape(self, inputs_shape):
        """Return `[B, T, K, K]`."""
        return (*inputs_shape, inputs_shape[-1])

    def compute_output_spec(self, inputs, mask=None):
        """Return the shape and dtype of the potentials."""
        tensor_checks.dense("inputs", inputs)
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=at_least_float32(self.compute_dtype))


@keras.saving.register_keras_serializable(package="keras_seq")
class ViterbiDecoder(Layer):
    """Give the likeliest tags of a `CRF`'s potentials, as a layer at the end of a model.

    ```python
    tagger = keras.Model(model.input, ViterbiDecoder()(model.output))
    ```

    Args:
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: Potentials `[B, T, K, K]`, which say themselves where padding is.

    Returns:
        Tags `[B, T]`, int32, -1 at padding.

    Raises:
        ValueError: If the inputs have another shape.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False

    def build(self, inputs_shape):
        """Create nothing."""

    def call(self, inputs):
        """Return the tags."""
        tags, _ = crf.viterbi(inputs)
        return tags

    def compute_output_shape(self, inputs_shape):
        """Return `[B, T]`."""
        return tuple(inputs_shape[:2])

    def compute_output_spec(self, inputs):
        """Return the shape and dtype of the tags."""
        return keras.KerasTensor(inputs.shape[:2], dtype="int32")

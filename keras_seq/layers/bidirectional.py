"""Two layers, of which one reads the sequence from its end (Schuster & Paliwal, 1997).

    y_t = [forward(x)_t | reverse(backward(reverse(x)))_t]               or their sum

Where padding copies the state, reversing the whole row, padding and all, reverses the real part: the backward layer
comes out of the padding on the right with the state it went in with.
"""

import keras
from keras import ops

from keras_seq.layers import arguments

MERGE_MODES = ("concat", "sum")


@keras.saving.register_keras_serializable(package="keras_seq")
class Bidirectional(keras.layers.Layer):
    """A layer and its copy, with weights of its own, that reads backwards.

    ```python
    layer = Bidirectional(LSTM(8))
    y = layer(x, mask=mask)  # x [B, T, D] -> y [B, T, 16]
    ```

    It sees the whole sequence at every position: for tagging, classifying and encoding, and never for a language model,
    whose next id it would read off. So it takes and gives no state.

    Args:
        layer: any recurrent layer of this package, or one like it: `layer(x, mask=...)` gives `[B, T, units]`, and a
            masked position copies the state.
        merge_mode: `"concat"`: `[B, T, 2 units]`, the forward half first; `"sum"`: `[B, T, units]`.

    Masking: `mask [B, T]`, padding on the left, on the right or in between; it goes on.

    Raises:
        ValueError: for an argument out of its range; a layer that is Bidirectional itself, or that does not give
            `[B, T, units]`.
    """

    def __init__(self, layer, merge_mode="concat", **kwargs):
        super().__init__(**kwargs)
        if isinstance(layer, Bidirectional) or not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"layer={layer!r}; expected a layer that reads in one direction, e.g. LSTM(8).")
        self.supports_masking = True
        self.autocast = False  # the layers cast what they take
        self.merge_mode = arguments.one_of("merge_mode", merge_mode, MERGE_MODES)
        self.layer = layer
        copy = keras.saving.serialize_keras_object(layer)
        if isinstance(copy["config"].get("seed"), int):
            copy["config"]["seed"] += 1  # else both directions would drop the same
        self.backward_layer = keras.saving.deserialize_keras_object(copy)
        self.backward_layer.name = f"backward_{layer.name}"

    def build(self, x_shape):
        arguments.sequence_shape("x", x_shape)
        for layer in (self.layer, self.backward_layer):
            if not layer.built:
                layer.build(x_shape)
        if len(self.layer.compute_output_shape(x_shape)) != 3:
            raise ValueError(f"{self.layer.name} gives one vector a sequence; expected one a position, [B, T, units].")

    def call(self, x, mask=None, training=None):
        mask = arguments.boolean_mask("mask", mask, ranks=(2,))
        reversed_mask = None if mask is None else ops.flip(mask, axis=1)
        forward = self.layer(x, mask=mask, training=training)
        backward = self.backward_layer(ops.flip(x, axis=1), mask=reversed_mask, training=training)
        backward = ops.flip(backward, axis=1)
        return forward + backward if self.merge_mode == "sum" else ops.concatenate([forward, backward], axis=-1)

    def compute_output_shape(self, x_shape):
        """`[B, T, 2 units]` or `[B, T, units]`."""
        *before, units = self.layer.compute_output_shape(x_shape)
        return (*before, units * (2 if self.merge_mode == "concat" else 1))

    def get_config(self):
        return {
            **super().get_config(),
            "layer": keras.saving.serialize_keras_object(self.layer),
            "merge_mode": self.merge_mode,
        }

    @classmethod
    def from_config(cls, config):
        """Revives the inner layer too."""
        config = dict(config)
        return cls(keras.saving.deserialize_keras_object(config.pop("layer")), **config)

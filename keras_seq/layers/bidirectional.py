"""Two layers, of which one reads the sequence from its end (Schuster & Paliwal, 1997).

    y_t = [forward(x)_t | reverse(backward(reverse(x)))_t]               or their sum, product, mean
    y   = [forward(x)_T | backward(reverse(x))_T]                        of layers that give their last output

Where padding copies the state, reversing the whole row, padding and all, reverses the real part: the backward layer
comes out of the padding on the right with the state it went in with.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.stateful import Stateful

MERGES = {
    "concat": lambda forward, backward: ops.concatenate([forward, backward], axis=-1),
    "sum": lambda forward, backward: forward + backward,
    "mul": lambda forward, backward: forward * backward,
    "ave": lambda forward, backward: (forward + backward) / 2,
    None: lambda forward, backward: (forward, backward),
}


@keras.saving.register_keras_serializable(package="keras_seq")
class Bidirectional(keras.layers.Layer):
    """A layer and its copy, with weights of its own, that reads backwards, in place of `keras.layers.Bidirectional`.

    ```python
    y = Bidirectional(LSTM(8))(x, mask=mask)  # x [B, T, D] -> y [B, 16]: the last output of each, from its own side
    y = Bidirectional(LSTM(8, return_sequences=True))(x)  # y [B, T, 16]
    y, *states = Bidirectional(LSTM(8, return_state=True))(x)  # h, c, and h, c of the backward layer
    ```

    It sees the whole sequence at every position: for tagging, classifying and encoding, and never for a language model,
    whose next id it would read off. So `Carry` and `LanguageModel` refuse it.

    Args:
        layer: any recurrent layer of this package or of Keras, or one like it: `layer(x, mask=...)` gives
            `[B, T, units]`, and a masked position copies the state. Its `return_sequences` and `return_state` count.
        merge_mode: `"concat"`: the forward half first, `"sum"`, `"mul"`, `"ave"`; None: both outputs as a tuple.
        backward_layer: one that reads backwards, of the same two settings; a copy of `layer` with new weights unless
            given.

    Call arguments:
        x: `[B, T, D]`.
        initial_state: a flat list, the parts of the forward layer's state and then those of the backward layer's.
        mask: `[B, T]`, padding on the left, on the right or in between. It goes on with a sequence, whose masked
            positions are zeros, as in Keras.

    Raises:
        ValueError: for an argument out of its range; a layer that is Bidirectional or a Carry itself, or two that do
            not fit.
    """

    def __init__(self, layer, merge_mode="concat", backward_layer=None, **kwargs):
        super().__init__(**kwargs)
        if isinstance(layer, (Bidirectional, Stateful)) or not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"layer={layer!r}; expected a layer that reads in one direction, e.g. LSTM(8).")
        if backward_layer is not None and not isinstance(backward_layer, keras.layers.Layer):
            raise ValueError(f"backward_layer={backward_layer!r}; expected a layer with go_backwards=True, or None.")
        self.supports_masking = True
        self.autocast = False  # the layers cast what they take
        self.merge_mode = checks.one_of("merge_mode", merge_mode, MERGES)
        self.layer = layer
        self.backward_layer = _backwards(layer) if backward_layer is None else backward_layer
        self.return_sequences = getattr(layer, "return_sequences", True)
        self.return_state = getattr(layer, "return_state", False)
        self._refuse_unless("return_sequences", self.return_sequences, default=True)
        self._refuse_unless("return_state", self.return_state, default=False)
        if self._turns_by_itself:
            self._refuse_unless("go_backwards", not layer.go_backwards, default=False)

    def _refuse_unless(self, name, value, default):
        found = getattr(self.backward_layer, name, default)
        if found != value:
            raise ValueError(f"backward_layer has {name}={found}; expected {value}, to go with {self.layer.name}.")

    @property
    def forward_layer(self):
        """Keras's name of `layer`."""
        return self.layer

    @property
    def _turns_by_itself(self):
        return hasattr(self.layer, "go_backwards")

    def build(self, x_shape):
        checks.sequence_shape("x", x_shape)
        for layer in (self.layer, self.backward_layer):
            if not layer.built:
                layer.build(x_shape)
        shape = self.layer.compute_output_shape(x_shape)
        if len(shape[0] if self.return_state else shape) != (3 if self.return_sequences else 2):
            raise ValueError(
                f"{self.layer.name} makes {shape} of {tuple(x_shape)}; expected [B, T, units] or [B, units]."
            )

    def call(self, x, initial_state=None, mask=None, x_mask=None, training=None):
        checks.real("x", x)
        x, mask = checks.masked("mask", x, x_mask if mask is None else mask)
        initial_state = [] if initial_state is None else list(initial_state)
        if len(initial_state) % 2:
            raise ValueError(
                f"initial_state has {len(initial_state)} parts; expected the forward and the backward ones."
            )
        half = len(initial_state) // 2
        forward, states = self._run(self.layer, x, initial_state[:half], mask, training)
        turned = (x, mask) if self._turns_by_itself else _flipped(x, mask)
        backward, more = self._run(self.backward_layer, turned[0], initial_state[half:], turned[1], training)
        if self.return_sequences:
            forward, backward = _zeroed(mask, forward, *_flipped(backward))
        y = MERGES[self.merge_mode](forward, backward)
        if not self.return_state:
            return y
        return (*(y if self.merge_mode is None else (y,)), *states, *more)

    def _run(self, layer, x, state, mask, training):
        """The layer's output, and the parts of its state if it gives them."""
        told = {"get_initial_state": state} if state else {}
        y = layer(x, mask=mask, training=training, **told)
        return (y[0], tuple(y[1:])) if self.return_state else (y, ())

    def compute_mask(self, inputs, mask=None):
        """The mask goes on with a sequence, or with both."""
        if mask is None or not self.return_sequences:
            return None
        return (mask, mask) if self.merge_mode is None else mask

    def compute_output_shape(self, x_shape, initial_state_shape=None):
        """`[B, 2 units]` or `[B, T, 2 units]`, of other merge modes than "concat" `units`; then those of the states."""
        shape, states = self.layer.compute_output_shape(x_shape), ()
        if self.return_state:
            shape, *states = shape
        y = (*shape[:-1], shape[-1] * (2 if self.merge_mode == "concat" else 1))
        y = (y, y) if self.merge_mode is None else (y,)
        return (*y, *states, *states) if len(y) > 1 or states else y[0]

    def compute_output_spec(self, *args, **kwargs):
        """The shapes and dtypes of `call` itself."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "layer": serialize(self.layer),
            "merge_mode": self.merge_mode,
            "backward_layer": serialize(self.backward_layer),
        }

    @classmethod
    def from_config(cls, config):
        """Revives the inner layers too; a config of 0.1.0 names the first alone."""
        config = dict(config)
        inner = [config.pop(name, None) for name in ("layer", "backward_layer")]
        layer, backward_layer = (part and keras.saving.deserialize_keras_object(part) for part in inner)
        return cls(layer, backward_layer=backward_layer, **config)


def _backwards(layer):
    """A copy with weights of its own that reads the other way, if it can be told so."""
    copy = keras.saving.serialize_keras_object(layer)
    config = copy["config"]
    if isinstance(config.get("seed"), int):
        config["seed"] += 1  # else both directions would drop the same
    if "go_backwards" in config:
        config["go_backwards"] = not config["go_backwards"]
    made = keras.saving.deserialize_keras_object(copy)
    made.name = f"backward_{layer.name}"
    return made


def _flipped(*values):
    return tuple(None if v is None else ops.flip(v, axis=1) for v in values)


def _zeroed(mask, *outputs):
    """The outputs with zeros where the mask is false."""
    if mask is None:
        return outputs
    return tuple(ops.where(ops.expand_dims(mask, -1), y, ops.zeros_like(y)) for y in outputs)

"""Two recurrent layers in opposite directions (Schuster & Paliwal, 1997).

    y_t = [forward(x)_t | reverse(backward(reverse(x)))_t]               or their sum, product, mean
    y   = [forward(x)_T | backward(reverse(x))_T]                        of layers that return their last output

Masked positions copy the state, so reversing a padded row also reverses its non-padding part: the padding on the right
comes first and leaves the initial state of the backward layer unchanged.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.configuration import deserialized, output_spec
from keras_seq.layers.base.layer import Layer, freeze_inner_layers
from keras_seq.layers.recurrent.stateful import Stateful
from keras_seq.ops import tensor_checks
from keras_seq.ops.tensor_checks import where_valid

MERGE_MODES = {
    "concat": lambda forward, backward: ops.concatenate([forward, backward], axis=-1),
    "sum": lambda forward, backward: forward + backward,
    "mul": lambda forward, backward: forward * backward,
    "ave": lambda forward, backward: (forward + backward) / 2,
    None: lambda forward, backward: (forward, backward),
}


@keras.saving.register_keras_serializable(package="keras_seq")
class Bidirectional(Layer):
    """A layer and a copy of it in reverse direction, with weights of its own; replaces `keras.layers.Bidirectional`.

    ```python
    y = Bidirectional(LSTM(8))(x, mask=mask)  # x [B, T, D] -> y [B, 16]: the last output of each direction
    y = Bidirectional(LSTM(8, return_sequences=True))(x)  # y [B, T, 16]
    y, *states = Bidirectional(LSTM(8, return_state=True))(x)  # h, c, and h, c of the backward layer
    ```

    For tagging, classification and encoders, not for causal language models: every output depends on later inputs.
    `Stateful` and `LanguageModel` therefore reject it.

    Args:
        layer: A recurrent layer of this package or of Keras, or a similar one: `layer(x, mask=...)` returns
            `[B, T, units]`, and a masked position copies the state. Its `return_sequences` and `return_state` apply.
        merge_mode: `"concat"` (the forward half first), `"sum"`, `"mul"`, `"ave"`, or None for both outputs as a tuple.
        backward_layer: A layer in reverse direction with the same `return_sequences` and `return_state`; a copy of
            `layer` with new weights unless given.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, D]`.
        initial_state: A flat list, the tensors of the forward layer's state and then those of the backward layer's.
        mask: `[B, T]`, true at non-padding positions; padding may be on the left, on the right or in between. With
            `return_sequences=True` it is passed on, and outputs at masked positions are zeros, as in Keras.
        inputs_mask: What Keras passes for `mask` when there is an initial state.

    Raises:
        ValueError: If an argument is out of its range, a layer is a `Bidirectional` or `Stateful` itself, or the two
            layers do not match.
    """

    loops_over_positions = False

    def __init__(self, layer, merge_mode: str | None = "concat", *, backward_layer=None, **kwargs):
        super().__init__(**kwargs)
        if isinstance(layer, (Bidirectional, Stateful)) or not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"layer={layer!r}; expected a layer of one direction, e.g. LSTM(8).")
        if backward_layer is not None and not isinstance(backward_layer, keras.layers.Layer):
            raise ValueError(f"backward_layer={backward_layer!r}; expected a layer with go_backwards=True, or None.")
        self.supports_masking = True
        self.autocast = False  # the layers cast their inputs
        self.merge_mode = checks.one_of("merge_mode", merge_mode, MERGE_MODES)
        self.layer = layer
        self.backward_layer = _backward_copy(layer) if backward_layer is None else backward_layer
        self.return_sequences = getattr(layer, "return_sequences", True)
        self.return_state = getattr(layer, "return_state", False)
        self._check_same("return_sequences", self.return_sequences, default=True)
        self._check_same("return_state", self.return_state, default=False)
        if self._layers_reverse:
            self._check_same("go_backwards", not layer.go_backwards, default=False)

    def _check_same(self, name, value, default):
        actual = getattr(self.backward_layer, name, default)
        if actual != value:
            raise ValueError(f"backward_layer has {name}={actual}; expected {value}, as {self.layer.name} requires.")

    @property
    def forward_layer(self):
        """Return `layer`, under Keras's name."""
        return self.layer

    @property
    def _layers_reverse(self):
        return hasattr(self.layer, "go_backwards")

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        self._read_width(inputs_shape)
        for layer in (self.layer, self.backward_layer):
            if not layer.built:
                layer.build(inputs_shape)
        shape = self.layer.compute_output_shape(inputs_shape)
        if len(shape[0] if self.return_state else shape) != (3 if self.return_sequences else 2):
            raise ValueError(
                f"{self.layer.name} returns {shape} for {tuple(inputs_shape)}; expected [B, T, units] or [B, units]."
            )
        freeze_inner_layers(self)

    def call(self, inputs, initial_state=None, mask=None, inputs_mask=None, training: bool | None = None):
        """Apply the layer; the class docstring describes the call arguments."""
        x = tensor_checks.real("inputs", inputs, self.compute_dtype)
        x, mask = tensor_checks.masked("mask", x, inputs_mask if mask is None else mask)
        x = where_valid(mask, x)
        initial_state = [] if initial_state is None else list(initial_state)
        if len(initial_state) % 2:
            raise ValueError(
                f"initial_state has {len(initial_state)} tensors; expected an even number, forward and backward."
            )
        half = len(initial_state) // 2
        forward, states = self._run_layer(self.layer, x, initial_state[:half], mask, training)
        backward_x, backward_mask = (x, mask) if self._layers_reverse else _reversed(x, mask)
        backward, backward_states = self._run_layer(
            self.backward_layer, backward_x, initial_state[half:], backward_mask, training
        )
        if self.return_sequences:
            forward, backward = where_valid(mask, forward), where_valid(mask, ops.flip(backward, axis=1))
        y = MERGE_MODES[self.merge_mode](forward, backward)
        if not self.return_state:
            return y
        return (*(y if self.merge_mode is None else (y,)), *states, *backward_states)

    def _run_layer(self, layer, x, state, mask, training):
        """Return the layer's output, and the tensors of its state if it returns them."""
        kwargs = {"initial_state": state} if state else {}
        y = layer(x, mask=mask, training=training, **kwargs)
        return (y[0], tuple(y[1:])) if self.return_state else (y, ())

    def compute_mask(self, inputs, mask=None):
        """Return the mask, for both outputs with `merge_mode=None`, or None without `return_sequences`."""
        if mask is None or not self.return_sequences:
            return None
        return (mask, mask) if self.merge_mode is None else mask

    def compute_output_shape(self, inputs_shape, initial_state_shape=None) -> tuple:
        """`[B, 2 units]` or `[B, T, 2 units]`, of other merge modes than "concat" `units`; then those of the states."""
        shape, states = self.layer.compute_output_shape(inputs_shape), ()
        if self.return_state:
            shape, *states = shape
        y = (*shape[:-1], shape[-1] * (2 if self.merge_mode == "concat" else 1))
        y = (y, y) if self.merge_mode is None else (y,)
        return (*y, *states, *states) if len(y) > 1 or states else y[0]

    def compute_output_spec(self, *args, **kwargs):
        """Return the shapes and dtypes of `call`."""
        dtypes = {self.layer.compute_dtype, self.backward_layer.compute_dtype}
        spec = output_spec if dtypes == {self.compute_dtype} else keras.Operation.compute_output_spec
        return spec(self, *args, **kwargs)

    @classmethod
    def from_config(cls, config):
        """Create the wrapper and its two layers from a config."""
        return cls(**deserialized(config, "layer", "backward_layer"))


def _backward_copy(layer):
    """Return a copy with weights of its own and, if it has the argument, the reverse `go_backwards`."""
    serialized = keras.saving.serialize_keras_object(layer)
    config = serialized["config"]
    if isinstance(config.get("seed"), int):
        config["seed"] += 1  # different dropout in the two directions
    if "go_backwards" in config:
        config["go_backwards"] = not config["go_backwards"]
    copy = keras.saving.deserialize_keras_object(serialized)
    copy.name = f"backward_{layer.name}"
    return copy


def _reversed(*values):
    return tuple(None if v is None else ops.flip(v, axis=1) for v in values)

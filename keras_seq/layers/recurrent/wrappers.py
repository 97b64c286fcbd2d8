"""Layers around recurrent ones: `Bidirectional` and `Stateful`.

`Bidirectional` has two in opposite directions (Schuster & Paliwal, 1997):

    y_t = [forward(x)_t | reverse(backward(reverse(x)))_t]               or their sum, product, mean
    y   = [forward(x)_T | backward(reverse(x))_T]                        of layers that return their last output

Masked positions copy the state, so reversing a padded row also reverses its non-padding part: the padding on the right
comes first and leaves the initial state of the backward layer unchanged.

`Stateful` carries the state of a layer from batch to batch in training (truncated backpropagation through time): row b
of batch n+1 starts from the state in which row b of batch n ended; `keras_seq.data.StatefulWindows` arranges a text in
that way (Williams & Peng, 1990). Gradients stop at the border between batches. In evaluation and prediction the wrapped
layer starts from its own initial state.
"""

import inspect

import keras
from keras import ops, tree

from keras_seq import checks
from keras_seq.layers.base.configuration import deserialized, output_spec
from keras_seq.layers.base.layer import Layer, freeze_inner_layers
from keras_seq.layers.base.state import has_explicit_state, tensors_in_order
from keras_seq.ops import tensor_checks
from keras_seq.ops.replicas import checked_rows
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


def _take_rows(x, count):
    """Return the first rows of x, and its last one where it has too few."""
    return ops.take(x, ops.minimum(ops.arange(count), ops.shape(x)[0] - 1), axis=0)


@keras.saving.register_keras_serializable(package="keras_seq")
class Stateful(Layer):
    """Wrap a layer or model with an explicit state, and carry that state from batch to batch in training.

    ```python
    ids = keras.Input((64,), batch_size=12, dtype="int32")
    reset_mask = keras.Input((), batch_size=12, dtype="bool")
    training_model = keras.Model([ids, reset_mask], Stateful(model, batch_size=12)(ids, reset_mask))
    training_model.fit(windows.stateful_dataset(0, 1000), shuffle=False)  # ((ids, reset_mask), targets)
    model.save("model.keras")  # the wrapped model, without the carried state
    ```

    Unlike `stateful=True` in Keras, evaluation and prediction neither read nor change the carried state.

    Args:
        layer: A layer or model with `get_initial_state(batch_size)` and `layer(x, state=..., return_state=True) ->
            (y, state)`. Every tensor of its state is `[B, ...]`. A cache of attention fills up, and its length is one
            number for all rows, so it cannot be carried.
        batch_size: Rows of a training batch, an integer. Evaluation and prediction take any number of rows.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, ...]`, inputs of the layer.
        reset_mask: `[B]` boolean, optional. Rows where it is true start from the initial state instead of the carried
            state: at the start of an epoch or of another document. Or `[B, T]`, for a layer that takes one: true
            where another document begins within a row.
        mask: `[B, T]`, passed to the layer if it takes a mask.
        inputs_mask: What Keras passes for `mask` when `reset_mask` is given.

    The state is held in non-trainable weights (the list `stateful.state`): a checkpoint of the training model contains
    it, and a file of the wrapped layer does not.

    Raises:
        ValueError: If the layer has no explicit state, was built with `return_state=True` or `go_backwards=True`,
            or has a state that is not `[B, ...]`; if a training batch has another number of rows than `batch_size`: in
            graphs of TensorFlow its InvalidArgumentError, and NaN where XLA compiles them.
    """

    def __init__(self, layer, batch_size: int, **kwargs):
        super().__init__(**kwargs)
        if not (isinstance(layer, keras.Layer) and has_explicit_state(layer)):
            raise ValueError(
                f"layer={layer!r}; expected a layer with a state, get_initial_state(batch_size) and state=: in a "
                "Sequential, each recurrent layer of keras_seq; or a LanguageModel."
            )
        if getattr(layer, "return_state", False):
            raise ValueError(f"{layer.name} has return_state=True; expected False, because Stateful holds the state.")
        if getattr(layer, "go_backwards", False):
            raise ValueError(f"{layer.name} has go_backwards=True; expected False, because batches continue forwards.")
        self.autocast = False  # the wrapped layer casts its inputs; the state keeps its own dtypes
        self.layer = layer
        self.batch_size = checks.positive_integer("batch_size", batch_size)

    def build(self, inputs_shape, reset_mask_shape=None):
        """Create the weights for inputs of this shape."""
        if not self.layer.built:
            self.layer.build(inputs_shape)

        def initializer_of(n):  # computed lazily, because a traced value must not leave its trace
            return lambda shape, dtype: tree.flatten(self.layer.get_initial_state(self.batch_size))[n]

        tensors = tree.flatten(self.layer.get_initial_state(self.batch_size))
        if any(len(tensor.shape) == 0 or tensor.shape[0] != self.batch_size for tensor in tensors):
            raise ValueError(
                f"The state of {self.layer.name} has other shapes than [B, ...]; expected B rows in every tensor."
            )
        self.state = [
            self.add_weight(
                shape=tensor.shape,
                dtype=keras.backend.standardize_dtype(tensor.dtype),
                initializer=initializer_of(n),
                trainable=False,
                autocast=False,
                name="state",
            )
            for n, tensor in enumerate(tensors)
        ]
        freeze_inner_layers(self)

    def reset_state(self, rows=None):
        """Set rows of the carried state to the initial state, between two calls of `fit`.

        Inside `fit`, pass `reset_mask` instead (on JAX, `fit` holds the variables itself).

        Args:
            rows: `[B]` boolean, true for the rows to reset; None resets all rows.

        Raises:
            ValueError: If the layer is not built, or `rows` is not boolean `[B]`.
        """
        if not self.built:
            raise ValueError("This Stateful is not built and has no state to reset; call or build it first.")
        rows = ops.ones((self.batch_size,), "bool") if rows is None else ops.convert_to_tensor(rows)
        if tuple(rows.shape) != (self.batch_size,):
            raise ValueError(f"rows has shape {tuple(rows.shape)}; expected [B] with B={self.batch_size}.")
        rows = tensor_checks.boolean_mask("rows", rows, ranks=(1,))
        values = self._with_reset_rows(self._read_state(), rows, self.batch_size)
        for variable, value in zip(self.state, values, strict=True):
            variable.assign(value)

    def _read_state(self):
        # copies, because torch assigns in place and the backward pass still needs the old values
        return [ops.copy(ops.stop_gradient(ops.convert_to_tensor(variable))) for variable in self.state]

    def _with_reset_rows(self, state, rows, num_rows):
        """Return the tensors of the state with the given rows set to the initial state."""
        return [
            ops.where(ops.reshape(rows, (-1,) + (1,) * (len(initial.shape) - 1)), initial, tensor)
            for initial, tensor in zip(tree.flatten(self.layer.get_initial_state(num_rows)), state, strict=True)
        ]

    def call(self, inputs, reset_mask=None, mask=None, inputs_mask=None, training: bool | None = None):
        """Apply the layer; the class docstring describes the call arguments."""
        mask = inputs_mask if mask is None else mask
        takes_mask = mask is not None and "mask" in inspect.signature(self.layer.call).parameters
        masked = {"mask": mask} if takes_mask else {}
        unchecked_mask = reset_mask
        reset_mask = tensor_checks.boolean_mask("reset_mask", reset_mask, ranks=(1, 2), x=inputs)
        if reset_mask is not None and len(reset_mask.shape) == 2:
            masked["reset_mask"], reset_mask = reset_mask, None
        if not training:
            return self.layer(inputs, training=False, **masked)
        remedy = "drop the remainder of the data, or pad it to as many rows"
        args = inputs, self.batch_size, f"expected batch_size={self.batch_size} of Stateful in training: {remedy}"
        inputs = checked_rows(*args)
        state, num_rows = self._read_state(), inputs.shape[0]
        is_unknown = num_rows is None
        if is_unknown:  # one number of rows everywhere, so that the check above is all that can fail
            num_rows = ops.shape(inputs)[0]
            state = [_take_rows(tensor, num_rows) for tensor in state]
        if reset_mask is not None:
            state = self._with_reset_rows(state, reset_mask, num_rows)
        before = tree.pack_sequence_as(self.layer.get_initial_state(self.batch_size), state)
        y, state = self.layer(inputs, state=before, training=True, return_state=True, **masked)
        for variable, value in zip(self.state, tensors_in_order(state, before), strict=True):
            value = _take_rows(value, self.batch_size) if is_unknown else value
            variable.assign(ops.stop_gradient(value))
        return tensor_checks.with_axes_of(tensor_checks.where_boolean(y, unchecked_mask), reset_mask, rank=1)

    def compute_mask(self, inputs, mask=None):
        """Return the mask of the wrapped layer."""
        return self.layer.compute_mask(inputs, mask)

    def compute_output_spec(self, inputs, reset_mask=None, mask=None, inputs_mask=None, training: bool | None = None):
        """Return the output spec of the wrapped layer."""
        return self.layer.compute_output_spec(inputs)

    @classmethod
    def from_config(cls, config):
        """Deserialize the wrapped layer and create a `Stateful` around it."""
        return cls(**deserialized(config, "layer"))

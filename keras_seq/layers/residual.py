"""Stacks of layers with a residual connection:  x + f(norm(x))  (He et al., 2016; Xiong et al., 2020)."""

import inspect

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.configuration import deserialized
from keras_seq.layers.base.layer import freeze_inner_layers, same_shape
from keras_seq.layers.base.state import ExplicitState, has_explicit_state, shapes
from keras_seq.layers.introspection import has_implicit_state, is_non_causal, iter_layers
from keras_seq.layers.normalization import NORMALIZATIONS, make_normalization
from keras_seq.layers.recurrent.base import RNNInterface
from keras_seq.ops import tensor_checks


def initial_states(layers, batch_size, **capacity):
    """Return the initial states of the layers that have one, as a tuple; `capacity=S` goes to those with a cache."""
    stateful = [layer for layer in layers if has_explicit_state(layer)]
    options = [capacity if _has_cache(layer) else {} for layer in stateful]
    return tuple(layer.get_initial_state(batch_size, **kwargs) for layer, kwargs in zip(stateful, options, strict=True))


def _has_cache(layer):
    return "capacity" in inspect.signature(layer.get_initial_state).parameters


def accepts_reset_mask(layer) -> bool:
    """Return whether the call of a layer takes a `reset_mask [B, T]`."""
    functions = [layer.call, *([layer.sequence] if isinstance(layer, RNNInterface) else [])]
    return all("reset_mask" in inspect.signature(function).parameters for function in functions)


def check_separates_documents(layers) -> None:
    """Raise if a layer reads other positions and takes no reset mask, so that one document would see another."""
    for layer in layers:
        mixes = has_explicit_state(layer) or has_implicit_state(layer) or is_non_causal(layer)
        if mixes and not accepts_reset_mask(layer):
            raise ValueError(
                f"{layer.name} ({type(layer).__name__}) takes no reset_mask, so documents in one row would not be "
                "separate: leave out document_token, or choose another layer."
            )
        check_separates_documents(layer.layers if isinstance(layer, PreNormResidual) else ())


def apply_sequentially(layers, x, state=None, mask=None, training: bool | None = None, first=None, reset_mask=None):
    """Apply layers one after the other, and return the output and the new states, None if none was passed.

    Those with an explicit state get and return it; masks go to the layers that take one, and `first`, further keyword
    arguments, to the first layer.
    """
    check_states(layers, state)
    state_in, state_out, extra_kwargs = list(state or ()), [], first or {}
    for layer in layers:
        if mask is not None and "mask" in inspect.signature(layer.call).parameters:
            extra_kwargs = extra_kwargs | {"mask": mask}
        if reset_mask is not None and accepts_reset_mask(layer):
            extra_kwargs = extra_kwargs | {"reset_mask": reset_mask}
        if state is not None and has_explicit_state(layer):
            x, layer_state = layer(x, state=state_in.pop(0), training=training, return_state=True, **extra_kwargs)
            state_out.append(layer_state)
        else:
            x = layer(x, training=training, **extra_kwargs)
        extra_kwargs = {}
    return x, None if state is None else tuple(state_out)


def check_states(layers, state):
    """Raise unless a state has an entry for each layer with a state; each layer then checks its own."""
    count = sum(map(has_explicit_state, layers))
    if state is not None and not (isinstance(state, tuple | list) and len(state) == count):
        raise ValueError(
            f"state has the shapes {shapes(state)}; expected a tuple of {count} states, as of get_initial_state."
        )


@keras.saving.register_keras_serializable(package="keras_seq")
class PreNormResidual(ExplicitState):
    """Normalize, apply layers one after the other, and add the result to the input.

    ```python
    block = PreNormResidual([CausalDepthwiseConv1D(4), MinGRU(64, return_sequences=True), keras.layers.Dense(32)])
    y = block(x)  # x [B, T, 32] -> y [B, T, 32]
    y, state = block(x, state=block.get_initial_state(B), return_state=True)
    ```

    Args:
        layers: A list of layers; the last one returns the width of the inputs again.
        normalization: `"rms"`, `"zero_centered_rms"` or `"layer"`, the normalization before the first layer; None for
            none: x + f(x).
        dropout: Fraction of the result to drop in training, before it is added.
        epsilon: Added to the mean square (1e-6 unless given) or variance (1e-5) by the normalization.
        center: Whether layer normalization adds an offset; the others never do.
        **kwargs: Those of `keras.layers.Layer`.

    The state is a tuple with an entry for each layer that has a state.

    Masking: `mask [B, T]` is passed to every layer that takes one, and passed on. So is `reset_mask [B, T]`, true where
    another document begins.

    Raises:
        ValueError: If an argument is out of its range, a layer occurs twice, or the layers change the shape.
    """

    loops_over_positions = False

    compute_output_shape = same_shape

    def __init__(
        self,
        layers,
        normalization: str | None = "rms",
        dropout: float = 0.0,
        epsilon: float | None = None,
        center: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not isinstance(layers, list | tuple) or not all(isinstance(layer, keras.layers.Layer) for layer in layers):
            raise ValueError(f"layers={layers!r}; expected a list of layers.")
        self.layers = list(layers)
        inner = [one for layer in layers for one in iter_layers(layer)]
        stateless = (layer.name for layer in inner if has_implicit_state(layer) or is_non_causal(layer))
        self._implicit = next(stateless, None)
        if len({id(layer) for layer in self.layers}) < len(self.layers):
            raise ValueError(
                "layers contains the same layer twice; expected different layers, because each has a state of its own."
            )
        self.normalization = checks.one_of("normalization", normalization, (*NORMALIZATIONS, None))
        self.dropout = checks.fraction("dropout", dropout)
        self.epsilon = None if epsilon is None else checks.positive_number("epsilon", epsilon)
        self.center = checks.boolean("center", center)
        options = {"center": center} if normalization == "layer" else {}
        self.normalization_layer = make_normalization(
            normalization, self.epsilon, name="normalization", dtype=self.dtype_policy, **options
        )
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        self._read_width(inputs_shape)
        self.normalization_layer.build(inputs_shape)
        shape = inputs_shape
        for layer in self.layers:
            if type(layer).compute_output_shape is keras.layers.Layer.compute_output_shape:  # a user's, without one
                shape = layer(keras.KerasTensor(shape, dtype=self.compute_dtype)).shape  # builds it, too
                continue
            if not layer.built:
                layer.build(shape)
            shape = layer.compute_output_shape(shape)
        if tuple(shape) != tuple(inputs_shape):
            raise ValueError(f"The layers return {tuple(shape)} for {tuple(inputs_shape)}; expected the same shape.")
        freeze_inner_layers(self)

    def get_initial_state(self, batch_size, capacity: int | None = None):
        """Return a tuple of the initial states of the layers that have a state.

        Args:
            batch_size: B, an integer or an integer tensor.
            capacity: Number of positions that a cache among them can hold; others have no use for it.
        """
        if self._implicit is not None:
            raise ValueError(
                f"{self._implicit} keeps no state between calls or reads later positions, so {self.name} has none; "
                "expected causal layers of keras_seq, or a call without a state."
            )
        return initial_states(self.layers, batch_size, **({} if capacity is None else {"capacity": capacity}))

    def call(
        self,
        inputs,
        state=None,
        mask=None,
        inputs_mask=None,
        training: bool | None = None,
        return_state: bool = False,
        reset_mask=None,
    ):
        """Apply the layer; the class docstring describes the call arguments."""
        x, mask = self._valid_inputs(inputs, inputs_mask if mask is None else mask)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        if reset_mask is not None:
            check_separates_documents(self.layers)
        if state is None and return_state:
            state = self.get_initial_state(ops.shape(x)[0])
        x_normalized = self.normalization_layer(x)
        y, state = apply_sequentially(self.layers, x_normalized, state, mask, training, reset_mask=reset_mask)
        y = x + self.dropout_layer(y, training=training)
        return (y, state) if return_state else y

    @classmethod
    def from_config(cls, config):
        """Deserialize the layers and create the residual block."""
        return cls(**deserialized(config, "layers"))

"""Layers one after the other, and what they add to a stream:  x + f(norm(x))  (He et al., 2016; Xiong et al., 2020)."""

import inspect

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.explicit_state import ExplicitState
from keras_seq.layers.normalization import NORMALIZATIONS
from keras_seq.layers.state_checks import shapes


def initial_states(layers, batch_size, **capacity):
    """The initial states of those layers that keep one, as a tuple."""
    return tuple(
        layer.get_initial_state(batch_size, **capacity) for layer in layers if hasattr(layer, "get_initial_state")
    )


def apply_sequentially(layers, x, state=None, mask=None, training=None, first=None):
    """Each layer applied to what the one before gave.

    Args:
        layers: of any kind. One that has `initial_state` keeps a state.
        x: what the first takes.
        state: from `states_of` or the call before; None runs every layer from its own initial state.
        mask: `[B, T]`, for those layers that take one.
        training: for all.
        first: further arguments, by name, of the first layer.

    Returns:
        `(y, state)`, a state of None staying None.
    """
    check_parts(layers, state)
    before, after, more = list(state or ()), [], first or {}
    for layer in layers:
        if mask is not None and "mask" in inspect.signature(layer.call).parameters:
            more = more | {"mask": mask}
        if state is not None and hasattr(layer, "get_initial_state"):
            x, part = layer(x, state=before.pop(0), training=training, return_state=True, **more)
            after.append(part)
        else:
            x = layer(x, training=training, **more)
        more = {}
    return x, None if state is None else tuple(after)


def check_parts(layers, state):
    """Refuses a state that has not an entry for each layer that keeps one; each layer then looks at its own."""
    count = sum(hasattr(layer, "get_initial_state") for layer in layers)
    if state is not None and not (isinstance(state, tuple | list) and len(state) == count):
        raise ValueError(
            f"state has the shapes {shapes(state)}; expected what initial_state gives, a tuple of {count}."
        )


@keras.saving.register_keras_serializable(package="keras_seq")
class PreNormResidual(ExplicitState):
    """Normalises, applies layers one after the other, and adds the result to what came in.

    ```python
    block = Residual([CausalConvolution(4), MinGRU(64, return_sequences=True), keras.layers.Dense(32)])
    y = block(x)  # x [B, T, 32] -> y [B, T, 32]
    y, state = block(x, state=block.initial_state(B), return_state=True)
    ```

    Args:
        layers: applied in turn; the last gives the width of x again. Those with `initial_state` keep a state.
        normalization: `"rms"` or `"layer"`, of what enters the first of them.
        dropout: fraction of the result dropped in training, before it is added.

    The state is a tuple with an entry for each layer that keeps one.

    Masking: `mask [B, T]` is handed to every layer that takes one, and goes on.

    Raises:
        ValueError: for an argument out of its range.
    """

    def __init__(self, layers, normalization="rms", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(layers, list | tuple) or not all(isinstance(layer, keras.layers.Layer) for layer in layers):
            raise ValueError(f"layers={layers!r}; expected a list of layers.")
        self.layers = list(layers)
        if len({id(layer) for layer in self.layers}) < len(self.layers):
            raise ValueError(
                "layers has the same layer twice; expected each once, for each would keep a state of its own."
            )
        self.normalization = checks.one_of("normalization", normalization, NORMALIZATIONS)
        self.dropout = checks.fraction("dropout", dropout)
        self.normalization_layer = NORMALIZATIONS[normalization](name="normalization", dtype=self.dtype_policy)
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        self.normalization_layer.build(x_shape)
        shape = x_shape
        for layer in self.layers:
            if not layer.built:
                layer.build(shape)
            shape = layer.compute_output_shape(shape)
        if tuple(shape) != tuple(x_shape):
            raise ValueError(f"The layers make {tuple(shape)} of {tuple(x_shape)}; expected the same shape.")

    def get_initial_state(self, batch_size):
        """The initial states of the layers that keep one."""
        return initial_states(self.layers, batch_size)

    def call(self, x, state=None, mask=None, x_mask=None, training=None, return_state=False):
        checks.real("x", x)
        x, mask = checks.masked("mask", ops.cast(x, self.compute_dtype), x_mask if mask is None else mask)
        if state is None and return_state:
            state = self.get_initial_state(ops.shape(x)[0])
        y, state = apply_sequentially(self.layers, self.normalization_layer(x), state, mask, training)
        y = x + self.dropout_layer(y, training=training)
        return (y, state) if return_state else y

    def compute_output_shape(self, x_shape):
        """As it came."""
        return tuple(x_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "layers": [keras.saving.serialize_keras_object(layer) for layer in self.layers],
            "normalization": self.normalization,
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config):
        """Revives the layers too."""
        config = dict(config)
        return cls([keras.saving.deserialize_keras_object(layer) for layer in config.pop("layers")], **config)

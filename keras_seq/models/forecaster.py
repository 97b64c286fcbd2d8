"""Forecast a series with the blocks of any language model.

model(values [B, T, C]) -> outputs [B, T, N], from which a loss of `keras_seq.evaluation` makes distributions
model.step(values [B, 1, C], state) -> (outputs [B, N], state)

values -> projection -> blocks -> head -> outputs: outputs at t are about the values after t
"""

import keras
from keras import ops

from keras_seq import checks, layers
from keras_seq.layers.base.configuration import deserialized, own_arguments
from keras_seq.layers.residual import apply_sequentially, initial_states
from keras_seq.models.laws import check_blocks, check_steps
from keras_seq.ops import tensor_checks
from keras_seq.ops.tensor_checks import at_least_float32


@keras.saving.register_keras_serializable(package="keras_seq")
class Forecaster(keras.Model):
    """Map a series to outputs about the values that follow each position.

    ```python
    loss = StudentTLoss(horizon=24)
    model = Forecaster(64, GRUConfig(units=128).blocks(), loss.num_outputs)
    model.compile("adam", loss)
    model.fit(values, next_values)  # [B, T, C], [B, T, 24]
    ```

    Args:
        width: D, the width of the projected values.
        blocks: Layers from `[B, T, D]` to `[B, T, D']`, as of a `LanguageModel`: causal, with an explicit state.
        num_outputs: N, the width of the outputs: `loss.num_outputs`.
        context_length: Maximum number of positions that the model can attend to; None if its state has no length.
        num_variables: C, the numbers that are read at each position.

    Call arguments:
        values: Numbers `[B, T, C]`. Scale them to about one, as the weights expect it.
        state: From `get_initial_state` or the call before; None starts from the initial state.
        training: Whether dropout is on.
        return_state: Whether to return `(outputs, state)` instead of outputs `[B, T, N]`, at least float32.
        mask: Booleans `[B, T]`, true at non-padding positions, or None.

    Raises:
        ValueError: A number is out of its range; a block reads later positions, or a layer that is not of keras_seq
            gives other outputs in steps than in one pass; values have another shape or more positions than
            `context_length`.
    """

    def __init__(
        self,
        width: int,
        blocks: list,
        num_outputs: int,
        context_length: int | None = None,
        num_variables: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_blocks(blocks, "forecaster")
        self.width = checks.positive_integer("width", width)
        self.num_outputs = checks.positive_integer("num_outputs", num_outputs)
        self.context_length = context_length
        if context_length is not None:
            checks.positive_integer("context_length", context_length)
        self.num_variables = checks.positive_integer("num_variables", num_variables)
        self.autocast = False  # the layers cast their inputs; the state keeps its own dtypes
        self.supports_masking = True
        self.projection = layers.Dense(width, dtype=self.dtype_policy, name="projection")
        self.blocks = list(blocks)
        self.head = layers.Dense(num_outputs, dtype=self.dtype_policy, name="head")

    def build(self, input_shape):
        """Build every layer, for values `[B, T, C]`."""
        x = keras.KerasTensor((*input_shape[:2], self.num_variables), dtype=self.compute_dtype)
        for layer in (self.projection, *self.blocks, self.head):
            y = layer(x)
            check_steps(layer, x, self.context_length)
            x = y

    def get_initial_state(self, batch_size):
        """Return the state before the first position."""
        if not self.built:
            self.build((None, None))
        limit = {} if self.context_length is None else {"capacity": self.context_length}
        return initial_states(self.blocks, batch_size, **limit)

    def call(self, values, state=None, training=None, return_state=False, mask=None):
        """Compute outputs `[B, T, N]` for values `[B, T, C]`."""
        if len(values.shape) != 3 or values.shape[2] != self.num_variables:
            raise ValueError(f"values has shape {tuple(values.shape)}; expected [B, T, {self.num_variables}].")
        if self.context_length is not None and (values.shape[1] or 0) > self.context_length:
            limit = f"context_length={self.context_length}"
            raise ValueError(f"values has {values.shape[1]} positions; expected at most {limit}.")
        if state is None and return_state:
            state = self.get_initial_state(ops.shape(values)[0])
        if mask is not None:  # whatever stands at padding
            mask = tensor_checks.boolean_mask("mask", mask, ranks=(2,), x=values)
            values = ops.where(mask[..., None], values, 0)
        x, state = apply_sequentially(self.blocks, self.projection(values), state, mask, training=training)
        outputs = ops.cast(self.head(x), at_least_float32(self.compute_dtype))
        return (outputs, state) if return_state else outputs

    def step(self, values, state):
        """Compute outputs `[B, N]` from one position `[B, 1, C]` and the state before it, and the next state."""
        outputs, state = self(values, state=state, training=False, return_state=True)
        return outputs[:, -1], state

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), **own_arguments(self, Forecaster)}

    @classmethod
    def from_config(cls, config):
        """Create the model and its layers from a config."""
        return cls(**deserialized(config, "blocks"))

"""The gated recurrent unit (Cho et al., 2014): the output is the state, updated by gated interpolation.

z = sigmoid(x W_z + h U_z + b_z)                    update gate: the weight of the old state
r = sigmoid(x W_r + h U_r + b_r)                    reset gate
g = tanh(x W_g + b_g + r (h U_g + c_g))             candidate, reset after the matmul (as in cuDNN)
g = tanh(x W_g + b_g + (r h) U_g)                   candidate, reset before the matmul (as in the paper)
h' = z h + (1 - z) g
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.recurrent.base import RecurrentBase
from keras_seq.ops.gru import gru


@keras.saving.register_keras_serializable(package="keras_seq")
class GRU(RecurrentBase):
    """A gated recurrent unit, a replacement for `keras.layers.GRU` with an explicit state.

    ```python
    y, h = GRU(8)(x, return_state=True)  # x [B, T, D] -> y [B, 8], the last output; more calls: see `LSTM`
    y = GRU(8, return_sequences=True)(x)  # y [B, T, 8], every output
    ```

    Weights are those of `keras.layers.GRU`, in its order (kernel `[D, 3 units]`, recurrent kernel `[units, 3 units]`,
    bias `[2, 3 units]` or, with `reset_after=False`, `[3 units]`; gates update, reset, candidate): weights and weight
    files can be exchanged between the two layers.

    Args:
        units: Width of the output, which is the state h `[B, units]`.
        activation: Activation of the candidate.
        recurrent_activation: Activation of the gates.
        use_bias: Whether to add a bias.
        reset_after: Whether the reset gate is applied after the recurrent matmul or before it; see the formulas above.
        **kwargs: Those of `LSTM` except `unit_forget_bias`.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the previous one.
    Precision: matrices in the layer's compute dtype, gates and h in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    num_gates = 3
    fused_kind = "gru"

    def __init__(
        self,
        units: int,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias: bool = True,
        *,
        reset_after: bool = True,
        **kwargs,
    ):
        super().__init__(units, activation, use_bias, **kwargs)
        self.recurrent_activation = keras.activations.get(recurrent_activation)
        self.reset_after = checks.boolean("reset_after", reset_after)
        self._keep_from_xla()

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Return the shape of the bias; with `reset_after` it has a second row, for the recurrent matmul."""
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def project_inputs(self, x):
        """Compute the input part `[B, T, 3 units]` of the pre-activations."""
        bias = self.bias[0] if self.use_bias and self.reset_after else self.bias
        return self._add_bias(ops.matmul(x, self._cast(self.kernel)), bias)

    def scan(self, z, h, mask, recurrent_dropout_mask, reset_mask=None):
        """Compute all time steps from the projected inputs `[B, T, 3 units]`: `(y [B, T, units], h)`."""
        recurrent_bias = None
        if self.reset_after:
            zeros = ops.zeros(3 * self.units, self.compute_dtype)
            recurrent_bias = self._cast(self.bias[1]) if self.use_bias else zeros
        masks = mask, recurrent_dropout_mask, self.activations, reset_mask
        args = z, h, self._cast(self.recurrent_kernel), recurrent_bias, *masks
        return gru(*args)

    def set_weights(self, weights):
        """Set the weights, after checking that the bias fits `reset_after`."""
        if len(weights) == 3:
            self._check_bias(weights[2])
        super().set_weights(weights)

    def load_cell_variables(self, store):
        """Load the weights of a file, after checking that the bias fits `reset_after`."""
        if len(store.keys()) == 3:
            self._check_bias(store["2"])
        super().load_cell_variables(store)

    def _check_bias(self, bias):
        """Check that a bias has the shape for this layer's `reset_after`."""
        if self.use_bias and tuple(bias.shape) != self.bias_shape:
            raise ValueError(
                f"{self.name}: the bias has shape {tuple(bias.shape)}; expected {self.bias_shape}, for a GRU of "
                f"{self.units} units with reset_after={self.reset_after}; use the same reset_after in both."
            )

"""The gated recurrent unit (Cho et al., 2014): the output is the state, updated by gated interpolation.

z = sigmoid(x W_z + h U_z + b_z)                    update gate: the weight of the old state
r = sigmoid(x W_r + h U_r + b_r)                    reset gate
g = tanh(x W_g + b_g + r (h U_g + c_g))             candidate, reset after the matmul (as in cuDNN)
g = tanh(x W_g + b_g + (r h) U_g)                   candidate, reset before the matmul (as in the paper)
h' = z h + (1 - z) g
"""

import keras
from keras import ops

from keras_seq import checks, kernels
from keras_seq.layers.recurrent_base import RecurrentBase, recurrence

TANH_AND_SIGMOID = ops.tanh, ops.sigmoid


def gru_cell(x, h, recurrent_kernel, recurrent_bias=None, recurrent_dropout_mask=None, activations=None):
    """Compute one time step.

    Args:
        x: `[B, 3 units]`, input part of the pre-activations of update gate, reset gate and candidate.
        h: `[B, units]`, previous state, float32 or wider.
        recurrent_kernel: `[units, 3 units]`.
        recurrent_bias: `[3 units]`; None resets h before the matmul.
        recurrent_dropout_mask: `[B, units]`, multiplies h before the recurrent matmul, or None.
        activations: Functions `(activation, recurrent_activation)`; tanh and sigmoid unless given.

    Returns:
        The next h, `[B, units]`.
    """
    tanh, sigmoid = activations or TANH_AND_SIGMOID
    units = h.shape[-1]
    h_in = ops.cast(h, x.dtype)
    h_in = h_in if recurrent_dropout_mask is None else h_in * recurrent_dropout_mask
    x = ops.cast(x, h.dtype)
    if recurrent_bias is not None:
        inner = ops.cast(ops.matmul(h_in, recurrent_kernel) + recurrent_bias, h.dtype)
        gates = sigmoid(x[:, : 2 * units] + inner[:, : 2 * units])
        update, reset = gates[:, :units], gates[:, units:]
        candidate = tanh(x[:, 2 * units :] + reset * inner[:, 2 * units :])
    else:
        inner = ops.cast(ops.matmul(h_in, recurrent_kernel[:, : 2 * units]), h.dtype)
        gates = sigmoid(x[:, : 2 * units] + inner)
        update, reset = gates[:, :units], gates[:, units:]
        inner = ops.matmul(ops.cast(reset, h_in.dtype) * h_in, recurrent_kernel[:, 2 * units :])
        candidate = tanh(x[:, 2 * units :] + ops.cast(inner, h.dtype))
    return update * h + (1 - update) * candidate


def gru(
    x,
    h,
    recurrent_kernel,
    recurrent_bias=None,
    mask=None,
    recurrent_dropout_mask=None,
    activations=None,
    reset_mask=None,
):
    """Compute all time steps, one after the other.

    Args:
        x: `[B, T, 3 units]`, input part of the pre-activations.
        h: `[B, units]`, state before the first time step, float32 or wider.
        recurrent_kernel: `[units, 3 units]`.
        recurrent_bias: `[3 units]`; None resets h before the matmul.
        mask: `[B, T]` boolean, or None. Where it is false, h is copied.
        recurrent_dropout_mask: `[B, units]`, multiplies h before the recurrent matmul, or None.
        activations: Functions `(activation, recurrent_activation)`; tanh and sigmoid unless given.
        reset_mask: `[B, T]` boolean, or None. Where it is true, h before the time step is set to zeros.

    Returns:
        `(y [B, T, units], h)`: h at every time step and the last h.
    """
    return recurrence(
        lambda x, h: gru_cell(x, h, recurrent_kernel, recurrent_bias, recurrent_dropout_mask, activations),
        x,
        h,
        mask,
        reset_mask,
    )


@keras.saving.register_keras_serializable(package="keras_seq")
class GRU(RecurrentBase):
    """A gated recurrent unit, a replacement for `keras.layers.GRU` with an explicit state.

    ```python
    layer = GRU(8)
    y = layer(x)  # x [B, T, D] -> y [B, 8], the last output, from the zero state
    y = GRU(8, return_sequences=True)(x)  # y [B, T, 8], every output
    y, h = layer(x, return_state=True)
    y, h = layer(more, state=h, return_state=True)  # continues from that state
    y, h = layer.step(x[:, 0], layer.get_initial_state(B))  # one time step: y [B, 8]
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

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Return the shape of the bias; with `reset_after` it has a second row, for the recurrent matmul."""
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def get_initial_state(self, batch_size):
        """Return the zero state h `[B, units]`."""
        return ops.zeros((batch_size, self.units), self.state_dtype)

    def project_inputs(self, x):
        """Compute the input part `[B, T, 3 units]` of the pre-activations."""
        bias = self.bias[0] if self.use_bias and self.reset_after else self.bias
        return self._add_bias(ops.matmul(x, self._cast(self.kernel)), bias)

    @property
    def keras_layer_class(self):
        """Return the Keras layer with the same formula (reset after the matmul), or None."""
        return keras.layers.GRU if self.reset_after and self.cudnn_supported else None

    def scan(self, z, h, mask, recurrent_dropout_mask, reset_mask=None):
        """Compute all time steps from the projected inputs `[B, T, 3 units]`: `(y [B, T, units], h)`."""
        recurrent_bias = None
        if self.reset_after:
            zeros = ops.zeros(3 * self.units, self.compute_dtype)
            recurrent_bias = self._cast(self.bias[1]) if self.use_bias else zeros
        masks = mask, recurrent_dropout_mask, self.activations, reset_mask
        args = z, h, self._cast(self.recurrent_kernel), recurrent_bias, *masks
        return kernels.dispatch("gru", gru, *args)(*args)

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

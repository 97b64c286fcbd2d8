"""The gated recurrent unit (Cho et al., 2014): the output is its own memory, renewed a part at a time.

z = sigmoid(x W_z + h U_z + b_z)                    update gate: how much is kept
r = sigmoid(x W_r + h U_r + b_r)                    reset gate: how much of h the candidate sees
g = tanh(x W_g + b_g + r (h U_g + c_g))             candidate, reset after the matmul (as cuDNN has it)
g = tanh(x W_g + b_g + (r h) U_g)                   candidate, reset before it (as the paper has it)
h' = z h + (1 - z) g
"""

import keras
from keras import ops

from keras_seq import checks, kernels
from keras_seq.layers.recurrent_base import Gated, recurrence

TANH_AND_SIGMOID = ops.tanh, ops.sigmoid


def gru_cell(x, h, recurrent_kernel, recurrent_bias=None, recurrent_dropout_mask=None, activations=None):
    """One position.

    Args:
        x: the inputs' share of update gate, reset gate and candidate, `[B, 3 units]`.
        h: the memory before, `[B, units]`, float32 or wider.
        recurrent_kernel: `[units, 3 units]`.
        recurrent_bias: `[3 units]`; None where the candidate resets h before the matmul.
        kept: `[B, units]`, what recurrent dropout multiplies h by on its way into the matmul, or None.
        activations: instead of (tanh, sigmoid), or None.

    Returns:
        The next h.
    """
    tanh, sigmoid = activations or TANH_AND_SIGMOID
    units = h.shape[-1]
    seen = ops.cast(h, x.dtype)
    seen = seen if recurrent_dropout_mask is None else seen * recurrent_dropout_mask
    x = ops.cast(x, h.dtype)
    if recurrent_bias is not None:
        inner = ops.cast(ops.matmul(seen, recurrent_kernel) + recurrent_bias, h.dtype)
        gates = sigmoid(x[:, : 2 * units] + inner[:, : 2 * units])
        update, reset = gates[:, :units], gates[:, units:]
        candidate = tanh(x[:, 2 * units :] + reset * inner[:, 2 * units :])
    else:
        inner = ops.cast(ops.matmul(seen, recurrent_kernel[:, : 2 * units]), h.dtype)
        gates = sigmoid(x[:, : 2 * units] + inner)
        update, reset = gates[:, :units], gates[:, units:]
        inner = ops.matmul(ops.cast(reset, seen.dtype) * seen, recurrent_kernel[:, 2 * units :])
        candidate = tanh(x[:, 2 * units :] + ops.cast(inner, h.dtype))
    return update * h + (1 - update) * candidate


def gru(x, h, recurrent_kernel, recurrent_bias=None, mask=None, recurrent_dropout_mask=None, activations=None):
    """All positions, one after the other.

    Args:
        x: `[B, T, 3 units]`, the inputs' share.
        h: `[B, units]`, the memory before the first position, float32 or wider.
        recurrent_kernel, recurrent_bias, kept, activations: as `gru_cell` takes them.
        mask: `[B, T]` boolean. Where it is false h is copied.

    Returns:
        `(y [B, T, units], h)`: h at every position and the last one.
    """
    return recurrence(
        lambda x, h: gru_cell(x, h, recurrent_kernel, recurrent_bias, recurrent_dropout_mask, activations), x, h, mask
    )


@keras.saving.register_keras_serializable(package="keras_seq")
class GRU(Gated):
    """A gated recurrent unit, in place of `keras.layers.GRU`, with the state in and out.

    ```python
    layer = GRU(8)
    y = layer(x)  # x [B, T, D] -> y [B, 8], the last output, from the zero state
    y = GRU(8, return_sequences=True)(x)  # y [B, T, 8], every output
    y, h = layer(x, return_state=True)
    y, h = layer(more, state=h, return_state=True)  # goes on where it ended
    y, h = layer.step(x[:, 0], layer.initial_state(B))  # one position: y [B, 8]
    ```

    Weights are those of `keras.layers.GRU`, in its order (kernel `[D, 3 units]`, recurrent kernel `[units, 3 units]`,
    bias `[2, 3 units]` or, with `reset_after=False`, `[3 units]`; gates update, reset, candidate), so that
    `get_weights` of one is `set_weights` of the other, and a file of one loads into the other.

    Args:
        units: width of the output, which is the state h `[B, units]`.
        reset_after: whether the reset gate acts after the matmul or before it; see the formula.
        **kwargs: those of `LSTM` but for `unit_forget_bias`.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the one before it.
    Precision: matrices in the layer's compute dtype, gates and h in float32 at least.

    Raises:
        ValueError: for an argument out of its range, or an input that is not `[B, T, D]`.
    """

    gates = 3

    def __init__(
        self, units, activation="tanh", recurrent_activation="sigmoid", use_bias=True, *, reset_after=True, **kwargs
    ):
        super().__init__(units, activation, recurrent_activation, use_bias, **kwargs)
        self.reset_after = checks.boolean("reset_after", reset_after)

    @property
    def bias_shape(self):
        """With `reset_after` a second row, for the recurrent matrix."""
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def get_initial_state(self, batch_size):
        """The zero state h `[B, units]`."""
        return ops.zeros((batch_size, self.units), self.state_dtype)

    def project_inputs(self, x):
        """The inputs' share of all positions' pre-activations."""
        bias = self.bias[0] if self.use_bias and self.reset_after else self.bias
        return self._biased(ops.matmul(x, self._cast(self.kernel)), bias)

    @property
    def keras_layer_class(self):
        """Keras's, where it is the same formula: with the reset after the matmul."""
        return keras.layers.GRU if self.reset_after and self.cudnn_can else None

    def scan(self, z, h, mask, recurrent_dropout_mask):
        recurrent_bias = None
        if self.reset_after:
            zeros = ops.zeros(3 * self.units, self.compute_dtype)
            recurrent_bias = self._cast(self.bias[1]) if self.use_bias else zeros
        args = z, h, self._cast(self.recurrent_kernel), recurrent_bias, mask, recurrent_dropout_mask, self.activations
        return kernels.dispatch("gru", gru, *args)(*args)

    def set_weights(self, weights):
        if len(weights) == 3:
            self._check_bias(weights[2])
        super().set_weights(weights)

    def load_weights_of(self, store):
        if len(store.keys()) == 3:
            self._check_bias(store["2"])
        super().load_weights_of(store)

    def _check_bias(self, bias):
        """Refuses by name the bias of a layer with the other `reset_after`."""
        if self.use_bias and tuple(bias.shape) != self.bias_shape:
            raise ValueError(
                f"{self.name}: a bias of shape {tuple(bias.shape)}; expected {self.bias_shape}, that of a GRU of "
                f"{self.units} units with reset_after={self.reset_after}; make both the same."
            )

    def get_config(self):
        return {**super().get_config(), "reset_after": self.reset_after}

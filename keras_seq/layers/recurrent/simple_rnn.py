"""The simple recurrent network (Elman, 1990), whose output is its state: h_t = tanh(x_t W + b + h_{t-1} U)."""

import keras
from keras import ops

from keras_seq.layers.recurrent.base import RecurrentBase
from keras_seq.ops.dispatch import exportable
from keras_seq.ops.recurrence import recurrence


def simple_rnn_cell(z, h, recurrent_kernel, activation=ops.tanh):
    """Compute one time step."""
    return activation(z + ops.matmul(h, recurrent_kernel))


@keras.saving.register_keras_serializable(package="keras_seq")
class SimpleRNN(RecurrentBase):
    """A recurrent layer without gates, a replacement for `keras.layers.SimpleRNN` with an explicit state.

    ```python
    y, h = SimpleRNN(8)(x, return_state=True)  # x [B, T, D] -> y [B, 8], the last output; more calls: see `LSTM`
    y = SimpleRNN(8, return_sequences=True)(x)  # y [B, T, 8], every output
    ```

    Weights are those of `keras.layers.SimpleRNN`, in its order (kernel `[D, units]`, recurrent kernel `[units, units]`,
    bias `[units]`): weights and weight files can be exchanged between the two layers.

    Args:
        units: Width of the output, which is the state h `[B, units]`.
        activation: `"tanh"` by default; `"relu"` with `recurrent_initializer="identity"` is the IRNN (Le et al., 2015).
        **kwargs: Those of `LSTM` except `recurrent_activation` and `unit_forget_bias`.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the previous one.
    Precision: the layer's compute dtype.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    def get_initial_state(self, batch_size):
        """Return the zero state h `[B, units]`."""
        return ops.zeros((batch_size, self.units), self.compute_dtype)

    def scan(self, z, h, mask, recurrent_dropout_mask, reset_mask=None):
        """Compute all time steps from the projected inputs `[B, T, units]`: `(y [B, T, units], h)`."""
        recurrent_kernel, activation = self._cast(self.recurrent_kernel), exportable(self.activation)

        def cell(z, h):
            h_in = h if recurrent_dropout_mask is None else h * recurrent_dropout_mask
            return ops.cast(simple_rnn_cell(z, h_in, recurrent_kernel, activation), h.dtype)

        return recurrence(cell, z, h, mask, reset_mask)

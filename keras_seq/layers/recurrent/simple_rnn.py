"""The simple recurrent network (Elman, 1990): the output is the whole state.

h' = tanh(x W + h U + b)
"""

import keras
from keras import ops

from keras_seq.layers.recurrent.rnn import RecurrentBase
from keras_seq.ops.recurrence import recurrence


def simple_rnn_cell(z, h, recurrent_kernel, activation=ops.tanh):
    """Compute one time step."""
    return activation(z + ops.matmul(h, recurrent_kernel))


@keras.saving.register_keras_serializable(package="keras_seq")
class SimpleRNN(RecurrentBase):
    """A recurrent layer without gates, a replacement for `keras.layers.SimpleRNN` with an explicit state.

    ```python
    layer = SimpleRNN(8)
    y = layer(x)  # x [B, T, D] -> y [B, 8], the last output, from the zero state
    y = SimpleRNN(8, return_sequences=True)(x)  # y [B, T, 8], every output
    y, h = layer(x, return_state=True)
    y, h = layer(more, state=h, return_state=True)  # continues from that state
    y, h = layer.step(x[:, 0], layer.get_initial_state(B))  # one time step: y [B, 8]
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
        recurrent_kernel = self._cast(self.recurrent_kernel)

        def cell(z, h):
            h_in = h if recurrent_dropout_mask is None else h * recurrent_dropout_mask
            return ops.cast(simple_rnn_cell(z, h_in, recurrent_kernel, self.activation), h.dtype)

        return recurrence(cell, z, h, mask, reset_mask)

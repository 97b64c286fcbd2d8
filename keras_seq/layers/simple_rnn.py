"""The simple recurrent network (Elman, 1990): what a position gives is all that the next one is told.

h' = tanh(x W + h U + b)
"""

import keras
from keras import ops

from keras_seq.layers.recurrent_base import RecurrentBase, recurrence


def simple_rnn_cell(z, h, recurrent_kernel, activation=ops.tanh):
    """One position. `z`: `x W + b`, `[B, units]`; `h`: the output before, `[B, units]`. Returns the next h."""
    return activation(z + ops.matmul(h, recurrent_kernel))


@keras.saving.register_keras_serializable(package="keras_seq")
class SimpleRNN(RecurrentBase):
    """A recurrent layer without gates.

    ```python
    layer = SimpleRNN(8)
    y = layer(x)  # x [B, T, D] -> y [B, 8], the last output, from the zero state
    y = SimpleRNN(8, return_sequences=True)(x)  # y [B, T, 8], every output
    y, h = layer(x, return_state=True)
    y, h = layer(more, state=h, return_state=True)  # goes on where it ended
    y, h = layer.step(x[:, 0], layer.initial_state(B))  # one position: y [B, 8]
    ```

    Weights are those of `keras.layers.SimpleRNN`, in its order (kernel `[D, units]`, recurrent kernel `[units, units]`,
    bias `[units]`), so that `get_weights` of one is `set_weights` of the other, and a file of one loads into the other.

    Args:
        units: width of the output, which is the state h `[B, units]`.
        activation: `"tanh"`; with `"relu"` and `recurrent_initializer="identity"` it is the IRNN (Le et al., 2015).
        **kwargs: those of `LSTM` but for the activation of gates and `unit_forget_bias`.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the one before it.
    Precision: the layer's compute dtype.

    Raises:
        ValueError: for an argument out of its range, or an input that is not `[B, T, D]`.
    """

    def get_initial_state(self, batch_size):
        """The zero state h `[B, units]`."""
        return ops.zeros((batch_size, self.units), self.compute_dtype)

    def scan(self, z, h, mask, recurrent_dropout_mask):
        recurrent_kernel = self._cast(self.recurrent_kernel)

        def cell(z, h):
            seen = h if recurrent_dropout_mask is None else h * recurrent_dropout_mask
            return ops.cast(simple_rnn_cell(z, seen, recurrent_kernel, self.activation), h.dtype)

        return recurrence(cell, z, h, mask)

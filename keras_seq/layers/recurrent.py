"""Long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate: Gers et al., 2000).

    z = x W + h U + b                      z = [i | f | g | o]: input, forget, candidate, output
    c' = sigmoid(f) c + sigmoid(i) tanh(g)             the memory
    h' = sigmoid(o) tanh(c')                           what the cell shows of it

The state goes in and comes out: `layer(x, state=state, return_state=True) -> (y, state)`. Nothing is
kept between calls; `Carry` does that where training wants it.
"""

import keras
from keras import ops

from keras_seq import kernels
from keras_seq.layers import arguments


def lstm_cell(z, c):
    """One position. `z`: pre-activations `[B, 4 units]`, `c`: memory `[B, units]`, both float32 or wider.

    Returns the output h and the memory c, each `[B, units]`.
    """
    i, f, g, o = ops.split(z, 4, axis=-1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


def lstm(z, recurrent_kernel, h, c, mask=None):
    """All positions, one after the other.

    Args:
        z: `[B, T, 4 units]`, the inputs' share of the pre-activations, `x W + b`.
        recurrent_kernel: `[units, 4 units]`.
        h: `[B, units]`, the output before the first position.
        c: `[B, units]`, the memory before the first position, float32 or wider.
        mask: `[B, T]` boolean. Where it is false the state is copied: h and c stay as they were.

    Returns:
        `(y [B, T, units], h, c)`: the output at every position and the last state.
    """

    def position(state, inputs):
        h, c = state
        z = inputs[:, : recurrent_kernel.shape[1]]
        new_h, new_c = lstm_cell(ops.cast(z + ops.matmul(h, recurrent_kernel), c.dtype), c)
        new_h = ops.cast(new_h, h.dtype)
        if mask is not None:
            keep = inputs[:, -1:] > 0
            new_h, new_c = ops.where(keep, new_h, h), ops.where(keep, new_c, c)
        return (new_h, new_c), (new_h, new_c)

    if mask is not None:  # the mask rides along as one more column: Keras scans two tensors only where T is known
        z = ops.concatenate([z, ops.expand_dims(ops.cast(mask, z.dtype), -1)], axis=-1)
    (h, c), (y, _) = ops.scan(position, (h, c), ops.swapaxes(z, 0, 1))
    return ops.swapaxes(y, 0, 1), h, c


@keras.saving.register_keras_serializable(package="keras_seq")
class UnitForgetBias(keras.initializers.Initializer):
    """Zeros, and ones for the forget gate (Jozefowicz et al., 2015): at first the memory is kept."""

    def __call__(self, shape, dtype=None):
        units = shape[0] // 4
        return ops.concatenate([ops.zeros(units, dtype), ops.ones(units, dtype), ops.zeros(2 * units, dtype)])


@keras.saving.register_keras_serializable(package="keras_seq")
class LSTM(keras.layers.Layer):
    """Long short-term memory that gives its output at every position and never hides its state.

    ```python
    layer = LSTM(8)
    y = layer(x)  # x [B, T, D] -> y [B, T, 8], from the zero state
    y, state = layer(x, return_state=True)
    y, state = layer(more, state=state, return_state=True)  # goes on where it ended
    y, state = layer.step(x[:, 0], layer.initial_state(B))  # one position: y [B, 8]
    ```

    Weights are those of `keras.layers.LSTM`, in its order (kernel `[D, 4 units]`, recurrent kernel
    `[units, 4 units]`, bias `[4 units]`; gates input, forget, candidate, output), so that `get_weights` of one is
    `set_weights` of the other.

    Args:
        units: width of the output and of the memory.
        kernel_initializer: of the input matrix.
        recurrent_initializer: of the recurrent matrix. `"orthogonal"` keeps the length of h; the 2017-style
            char-RNN used `"glorot_normal"`.
        bias_initializer: `"unit_forget"` is zero but for the forget gate, which starts at one.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the one before it.
    Precision: matrices in the layer's compute dtype, gates and memory in float32 at least.
    """

    def __init__(
        self,
        units,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="unit_forget",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False  # Keras would cast the state too, and the memory is wider than the rest
        self.units = arguments.positive_integer("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = (
            UnitForgetBias() if bias_initializer == "unit_forget" else keras.initializers.get(bias_initializer)
        )

    def build(self, input_shape):
        width = arguments.sequence_shape("x", input_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        self.kernel = self.add_weight(shape=(width, 4 * self.units), initializer=self.kernel_initializer, name="kernel")
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, 4 * self.units), initializer=self.recurrent_initializer, name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(4 * self.units,), initializer=self.bias_initializer, name="bias")
        # Four matrices stand side by side: an optimizer of matrices (Muon) is to treat each on its own.
        self.kernel.matrix_blocks = self.recurrent_kernel.matrix_blocks = 4

    @property
    def state_dtype(self):
        """The memory's dtype: float32, or float64 under that policy."""
        return keras.backend.result_type(self.compute_dtype, "float32")

    def initial_state(self, batch_size):
        """The zero state: `(h [B, units], c [B, units])`."""
        shape = (batch_size, self.units)
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.state_dtype)

    def call(self, x, state=None, mask=None, return_state=False):
        mask = arguments.boolean_mask("mask", mask, ranks=(2,))
        h, c = self.initial_state(ops.shape(x)[0]) if state is None else state
        x, kernel, recurrent_kernel, bias = (
            ops.cast(v, self.compute_dtype) for v in (x, self.kernel, self.recurrent_kernel, self.bias)
        )
        args = ops.matmul(x, kernel) + bias, recurrent_kernel, h, c, mask
        y, h, c = kernels.twin("lstm", lstm, *args)(*args)
        return (y, (h, c)) if return_state else y

    def step(self, x, state):
        """One position: `x [B, D]`, `state` -> `(y [B, units], state)`."""
        y, state = self(ops.expand_dims(x, 1), state=state, return_state=True)
        return y[:, 0], state

    def compute_mask(self, inputs, mask=None):
        """The mask goes on to the layers above."""
        return mask

    def compute_output_shape(self, x_shape):
        """`[B, T, units]`."""
        return (*x_shape[:-1], self.units)

    def compute_output_spec(self, *args, **kwargs):
        """The shapes and dtypes of `call` itself, whatever it is asked to return."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

"""sLSTM, the LSTM with exponential gates and heads (Beck et al., 2024, "xLSTM", arXiv:2405.04517, equations 8-18).

    i, f, z, o = W x + R h + b                       W and R block-diagonal: a head sees its own features only
    m' = max(logsigmoid(f) + m, i)                   keeps the exponentials in range; cancels in h
    c' = exp(logsigmoid(f) + m - m') c + exp(i - m') tanh(z)
    n' = exp(logsigmoid(f) + m - m') n + exp(i - m')
    h' = sigmoid(o) c' / n'

    layer: i and f see silu(causal convolution of x), z and o see x;  y = layer norm(h) over the features of a head

h is a gated mean of all past tanh(z), weighted by the exponential input gates. Its gates depend on h, so positions are
computed one after the other.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import MatrixAttribute, freeze_inner_layers, same_shape
from keras_seq.layers.base.state import ExplicitState
from keras_seq.layers.dense import inner_block_diagonal
from keras_seq.layers.linear.mixer import CausalDepthwiseConv1D
from keras_seq.layers.normalization import merge_heads, normalize_heads, split_heads
from keras_seq.ops import tensor_checks
from keras_seq.ops.linear_recurrence import LOG_ZERO
from keras_seq.ops.recurrence import recurrence


def slstm_cell(z, state):
    """Compute the next state."""
    _, c, n, m = state
    log_i, f, candidate, o = ops.split(z, 4, axis=-1)
    log_f = ops.where(n > 0, m - ops.softplus(-f), LOG_ZERO)
    m = ops.stop_gradient(ops.maximum(log_f, log_i))  # h does not depend on it
    f, i = ops.exp(log_f - m), ops.exp(log_i - m)
    c = f * c + i * ops.tanh(candidate)
    n = f * n + i
    return ops.sigmoid(o) * c / n, c, n, m


@keras.saving.register_keras_serializable(package="keras_seq")
class SLSTM(ExplicitState):
    """xLSTM's scalar LSTM: exponential input gates, a normalizer, and heads whose states do not mix.

    ```python
    layer = SLSTM(num_heads=4)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: H, a divisor of D.
        kernel_size: Kernel size of the causal convolution before the input and the forget gate.
        epsilon: Added to the variance that a head's output is normalized by.
        kernel_initializer: Initializer of the four input matrices.
        recurrent_initializer: Initializer of the recurrent kernel `[D / H, 4 D]`.
        **kwargs: Those of `keras.layers.Layer`.

    The state is `(state of the convolution, (h, c, n, m))`, `[B, D]` each.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the previous one, and is skipped
        by the convolution. The mask is passed on. `reset_mask [B, T]` is true where another document begins.
    Precision: matrices and convolution in the layer's compute dtype, the recurrence in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    compute_output_shape = same_shape

    recurrent_kernel = MatrixAttribute()

    def __init__(
        self,
        num_heads: int,
        kernel_size: int = 4,
        epsilon: float = 1e-5,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = checks.positive_integer("num_heads", num_heads)
        self.kernel_size = kernel_size
        self.epsilon = checks.positive_number("epsilon", epsilon)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.convolution = CausalDepthwiseConv1D(kernel_size, dtype=self.dtype_policy, name="convolution")

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        self._width = tensor_checks.sequence_shape("inputs", inputs_shape)
        if self._width % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads}; expected a divisor of the width {self._width}.")
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: self._width})
        self.convolution.build(inputs_shape)
        biases = {"input_gate": "zeros", "forget_gate": self._forget_bias, "candidate": "zeros", "output_gate": "zeros"}
        sizes, initializer = (self.num_heads, self._width), self.kernel_initializer
        self.input_denses = [
            inner_block_diagonal(self, name, *sizes, initializer, bias_initializer=bias, autocast=False)
            for name, bias in biases.items()
        ]
        size = self._width // self.num_heads
        self.recurrent_kernel = self.add_weight(
            shape=(size, 4 * self._width), initializer=self.recurrent_initializer, name="recurrent_kernel"
        )
        self.scale = self.add_weight(shape=(self._width,), initializer="ones", name="scale")
        freeze_inner_layers(self)

    def _forget_bias(self, shape, dtype=None):
        """Return numbers from 3 to 6 for each head, so that it remembers at the start."""
        return ops.tile(ops.linspace(3.0, 6.0, shape[0] // self.num_heads, dtype=dtype), [self.num_heads])

    def get_initial_state(self, batch_size):
        """Return zeros: the last inputs of the convolution, h, c, n and m."""
        zeros = ops.zeros((batch_size, self._width), self.state_dtype)
        return self.convolution.get_initial_state(batch_size), (zeros, zeros, zeros, zeros)

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        last_inputs, state = state
        u, last_inputs = self.convolution(x, state=last_inputs, mask=mask, reset_mask=reset_mask, return_state=True)
        u = ops.silu(u)
        parts = zip(self.input_denses, (u, u, x, x), strict=True)
        z = ops.concatenate([dense.project(v) for dense, v in parts], axis=-1)  # [B, T, 4 D]
        bias = ops.concatenate([dense.bias for dense in self.input_denses])
        z = self._to_state_dtype(z) + self._to_state_dtype(bias)  # of up to 6, beside which half precision loses z
        kernel = ops.cast(self.recurrent_kernel, self.compute_dtype)
        size = self._width // self.num_heads
        kernel = ops.transpose(ops.reshape(kernel, (size, 4, self.num_heads, size)), (2, 0, 1, 3))  # [H, K, 4, K]
        kernel = ops.reshape(kernel, (self.num_heads, size, 4 * size))

        def cell(z, state):
            h = ops.cast(ops.reshape(state[0], (-1, self.num_heads, size)), self.compute_dtype)
            recurrent = ops.matmul(ops.swapaxes(h, 0, 1), kernel)  # [H, B, 4 K]
            recurrent = ops.reshape(recurrent, (self.num_heads, -1, 4, size))
            recurrent = ops.reshape(ops.transpose(recurrent, (1, 2, 0, 3)), (-1, 4 * self._width))
            return slstm_cell(z + ops.cast(recurrent, z.dtype), state)

        h, state = recurrence(cell, z, state, mask, reset_mask)
        heads = split_heads(h, self.num_heads)
        scale = ops.reshape(self.scale, (self.num_heads, size))
        y = ops.cast(merge_heads(normalize_heads(heads, scale, self.epsilon, centered=True)), self.compute_dtype)
        return y, (last_inputs, state)

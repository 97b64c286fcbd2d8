"""The real-gated linear recurrent unit and Griffin's recurrent block (De et al., 2024, arXiv:2402.19427).

    r = sigmoid(x W_r + b_r);  i = sigmoid(x W_i + b_i)          recurrence and input gate, block-diagonal matrices
    a = exp(-8 softplus(Lambda) r)
    h' = a h + sqrt(1 - a^2) (i x)                               at the first position of a sequence: h' = i x

    block: y = (RG-LRU(convolution(x W_x)) gelu(x W_y)) W_out

The factor sqrt(1 - a^2) keeps the variance of h at that of its inputs, however long h remembers.
"""

import math

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import freeze_inner_layers, same_shape
from keras_seq.layers.base.state import ExplicitState
from keras_seq.layers.dense import inner_block_diagonal
from keras_seq.layers.linear.mixer import CausalDepthwiseConv1D, TokenMixer, decay_radius
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import count_elements
from keras_seq.ops.dispatch import twins_enabled
from keras_seq.ops.linear_recurrence import linear_recurrence
from keras_seq.ops.tensor_checks import where_valid

EXPONENT = 8.0  # c, by which a is the more sensitive to r


def one_minus_exp(x):
    """Return 1 - exp(x) for x <= 0, as exact for small ones."""
    if twins_enabled():
        return -ops.expm1(x)
    half = ops.tanh(x / 2)  # in a file: neither ONNX nor LiteRT knows expm1, and exp(x) - 1 loses the digits of small x
    return -2 * half / (1 - half)


def sigmoid(x):
    """Return the sigmoid, in a file by exp: onnxruntime's is exact to 1e-7, too little for roots of small ones."""
    return ops.sigmoid(x) if twins_enabled() else 1 / (1 + ops.exp(ops.minimum(-x, 80.0)))


@keras.saving.register_keras_serializable(package="keras_seq")
class RGLRU(ExplicitState):
    """The real-gated linear recurrent unit: an average of past inputs whose decay is gated for each feature.

    ```python
    layer = RGLRU(num_heads=4)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: Number of blocks of the gates' matrices, a divisor of D.
        kernel_initializer: Initializer of the gates' kernels `[D / num_heads, D]`.
        **kwargs: Those of `keras.layers.Layer`.

    The state is `(h [B, D], started [B, 1])`; started is 0 before the first position and 1 after it.

    Masking: `mask [B, T]`; a masked position copies the state, so its output repeats the previous one. `reset_mask
        [B, T]` is true where another document begins, from the initial state.
    Precision: matrices in the layer's compute dtype, gates and h in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    compute_output_shape = same_shape

    def __init__(self, num_heads: int, kernel_initializer="lecun_normal", **kwargs):
        super().__init__(**kwargs)
        self.num_heads = checks.positive_integer("num_heads", num_heads)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        self._width = tensor_checks.sequence_shape("inputs", inputs_shape)
        if self._width % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads}; expected a divisor of the width {self._width}.")
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: self._width})
        self.recurrence_gate, self.input_gate = (
            inner_block_diagonal(self, name, self.num_heads, self._width, self.kernel_initializer)
            for name in ("recurrence_gate", "input_gate")
        )
        self.decay = self.add_weight(shape=(self._width,), initializer=decay_radius, name="decay")
        freeze_inner_layers(self)

    def get_initial_state(self, batch_size):
        """Return zeros: h `[B, D]`, and that no position was read, `[B, 1]`."""
        return ops.zeros((batch_size, self._width), self.state_dtype), ops.zeros((batch_size, 1), self.state_dtype)

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        h, started = state
        count = count_elements(ops.shape(x)[1], mask, started[:, 0], reset_mask)  # [B, T]
        is_first = ops.expand_dims(count <= 1, -1)  # where valid; padding before it writes nothing
        r = sigmoid(self._to_state_dtype(self.recurrence_gate(x)))  # [B, T, D]
        i = ops.sigmoid(self._to_state_dtype(self.input_gate(x)))
        log_a = -EXPONENT * ops.softplus(self._to_state_dtype(self.decay)) * r
        variance = ops.maximum(one_minus_exp(2 * log_a), 1e-12)  # the derivative of the root stays finite
        drive = ops.where(is_first, 1.0, ops.sqrt(variance)) * i * self._to_state_dtype(x)
        a = where_valid(mask, ops.where(is_first, 0.0, ops.exp(log_a)), 1.0)
        if reset_mask is not None:
            a = ops.where(ops.expand_dims(reset_mask, -1), 0.0, a)
        h = linear_recurrence(a, where_valid(mask, drive), h)
        state = h[:, -1], ops.cast(count[:, -1:] > 0, h.dtype)
        return ops.cast(h, self.compute_dtype), state


@keras.saving.register_keras_serializable(package="keras_seq")
class GriffinRecurrentBlock(TokenMixer):
    """Griffin's recurrent block, without its residual connection: a convolution and an RG-LRU, multiplied by a gate.

    ```python
    layer = GriffinRecurrentBlock(num_heads=4)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: Number of blocks of the gates' matrices.
        head_dim: Width of such a block, so that the RG-LRU has `num_heads * head_dim` units; D / `num_heads`, rounded
            up, unless given.
        kernel_size: Kernel size of the causal convolution.
        use_bias: Whether the input and output matrices add a bias.
        kernel_initializer: Initializer of the input matrices.
        output_initializer: Initializer of the last matrix, which writes to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    The state is `(state of the convolution, state of the RG-LRU)`.

    Masking: `mask [B, T]`; a masked position copies the state and is skipped by the convolution. The mask is passed on.
        `reset_mask [B, T]` is true where another document begins, from the initial state.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    largest_input = math.inf

    def __init__(
        self, num_heads: int, head_dim: int | None = None, kernel_size: int = 4, use_bias: bool = True, **kwargs
    ):
        super().__init__(num_heads, use_bias=use_bias, **kwargs)
        self.head_dim = None if head_dim is None else checks.positive_integer("head_dim", head_dim)
        self.kernel_size = kernel_size
        self.convolution = CausalDepthwiseConv1D(kernel_size, dtype=self.dtype_policy, name="convolution")
        self.rg_lru = RGLRU(num_heads, dtype=self.dtype_policy, name="rg_lru")

    def build_weights(self, width):
        """Create the weights for inputs of this width."""
        inner = self.num_heads * (self.head_dim or -(-width // self.num_heads))
        self.input_dense = self._dense("input", width, inner)
        self.gate_dense = self._dense("gate", width, inner)
        self.convolution.build((None, None, inner))
        self.rg_lru.build((None, None, inner))
        self.output_dense = self._dense("output", inner, width, initializer=self.output_initializer)

    def get_initial_state(self, batch_size):
        """Return zeros: the last inputs of the convolution, and the state of the RG-LRU."""
        return self.convolution.get_initial_state(batch_size), self.rg_lru.get_initial_state(batch_size)

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        last_inputs, h = state
        u, last_inputs = self.convolution(
            self.input_dense(x), state=last_inputs, mask=mask, reset_mask=reset_mask, return_state=True
        )
        u, h = self.rg_lru(u, state=h, mask=mask, reset_mask=reset_mask, return_state=True)
        y = self.output_dense(u * ops.gelu(self.gate_dense(x), approximate=True))
        return y, (last_inputs, h)

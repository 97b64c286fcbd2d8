"""mLSTM, the LSTM with a matrix for its memory (Beck et al., 2024, "xLSTM", arXiv:2405.04517, equations 19-27).

    C' = f C + i k v / sqrt(K);  n' = f n + i k / sqrt(K)             for each head;  f = sigmoid(.), i = exp(.)
    h = q C' / max(|q n'|, 1)

The exponential input gate is kept in range by m' = max(log f + m, log i): C and n are stored times exp(-m), which
cancels in h. So f and i are at most 1, and C is a linear recurrence that is computed in chunks.

    layer: u, z = x W_u, x W_z;  c = silu(causal convolution of u)    inner width H K
    q, k = c W_q, c W_k;  v = u W_v                                   block-diagonal matrices
    f, i from [q, k, v]
    y = ((layer norm(h) + skip c) silu(z)) W_out                      norm over the features of a head
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import MatrixAttribute
from keras_seq.layers.dense import inner_block_diagonal
from keras_seq.layers.linear.mixer import CausalDepthwiseConv1D, TokenMixer, evenly_spaced
from keras_seq.layers.normalization import merge_heads, normalize_heads
from keras_seq.ops.linear_recurrence import LOG_ZERO, max_plus_recurrence
from keras_seq.ops.matrix_recurrence import matrix_recurrence
from keras_seq.ops.tensor_checks import where_valid

DENOMINATOR_EPSILON = 1e-6


def mlstm(q, k, v, log_i, log_f, state, reset_mask=None):
    """Compute h at every position and the last state."""
    c, n, first_m = state
    # h does not depend on m, so its gradient by m is zero
    a, b = log_f, log_i
    if reset_mask is not None:  # m of the position before is 0
        is_first = ops.expand_dims(reset_mask, -1)
        a, b = ops.where(is_first, LOG_ZERO, log_f), ops.where(is_first, ops.maximum(log_f, log_i), log_i)
    m = ops.stop_gradient(max_plus_recurrence(a, b, first_m))
    first_m = ops.stop_gradient(first_m)
    previous_m = ops.concatenate([ops.expand_dims(first_m, 1), m], axis=1)[:, :-1]
    i = ops.exp(log_i - m)
    # n is one more column of C: it sums keys with values of 1
    ones = ops.ones_like(v[..., :1])
    y, last = matrix_recurrence(
        q,
        k * ops.expand_dims(i, -1),
        ops.concatenate([v, ones], axis=-1),
        log_f + previous_m - m,
        ops.concatenate([c, ops.expand_dims(n, -1)], axis=-1),
        reset_mask=reset_mask,
    )
    smallest = ops.exp(ops.minimum(-m, 80.0))
    h = y[..., :-1] / (ops.maximum(ops.abs(y[..., -1:]), ops.expand_dims(smallest, -1)) + DENOMINATOR_EPSILON)
    return h, (last[..., :-1], last[..., -1], m[:, -1])


@keras.saving.register_keras_serializable(package="keras_seq")
class MLSTM(TokenMixer):
    """xLSTM's matrix LSTM: linear attention with an exponential input gate, a forget gate and a normalizer.

    ```python
    layer = MLSTM(num_heads=4)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: H.
        head_dim: K, width of a head, a multiple of `qkv_block_size`; 2 D / H, rounded up, unless given.
        qkv_block_size: Size of the blocks of the matrices of queries, keys and values.
        kernel_size: Kernel size of the causal convolution.
        epsilon: Added to the variance that a head's output is normalized by.
        use_bias: Whether the matrices of inputs, queries, keys, values and outputs add a bias.
        kernel_initializer: Initializer of the first and of the block-diagonal matrices; the gates' start at zero.
        output_initializer: Initializer of the last matrix, `[H K, D]`, which writes to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    The state is `(state of the convolution, (C [B, H, K, K], n [B, H, K], m [B, H]))`.

    Masking: `mask [B, T]`; a masked position copies the state and is skipped by the convolution. The mask is passed on.
        `reset_mask [B, T]` is true where another document begins, from the initial state.
    Precision: matrices and convolution in the layer's compute dtype, gates and recurrence in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    gates_kernel = MatrixAttribute()

    def __init__(
        self,
        num_heads: int,
        head_dim: int | None = None,
        qkv_block_size: int = 4,
        kernel_size: int = 4,
        epsilon: float = 1e-5,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.qkv_block_size = checks.positive_integer("qkv_block_size", qkv_block_size)
        self.head_dim = None if head_dim is None else checks.positive_integer("head_dim", head_dim)
        if head_dim is not None and head_dim % qkv_block_size:
            raise ValueError(f"head_dim={head_dim}; expected a multiple of qkv_block_size={qkv_block_size}.")
        self.kernel_size = kernel_size
        self.epsilon = checks.positive_number("epsilon", epsilon)
        self.convolution = CausalDepthwiseConv1D(kernel_size, dtype=self.dtype_policy, name="convolution")

    def build_weights(self, width):
        """Create the weights for inputs of this width."""
        size = self.qkv_block_size
        self._head_dim = self.head_dim or size * -(-2 * width // (self.num_heads * size))
        inner = self.num_heads * self._head_dim
        self.input_dense = self._dense("input", width, 2 * inner)
        self.convolution.build((None, None, inner))
        num_blocks, initializer = inner // size, self.kernel_initializer
        self.query_dense, self.key_dense, self.value_dense = (
            inner_block_diagonal(self, name, num_blocks, inner, initializer, use_bias=self.use_bias)
            for name in ("query", "key", "value")
        )
        self.gates_kernel = self._vector("gates_kernel", (3 * inner, 2 * self.num_heads))
        self.input_gate_bias = self._vector(
            "input_gate_bias", (self.num_heads,), keras.initializers.RandomNormal(stddev=0.1)
        )
        self.forget_gate_bias = self._vector("forget_gate_bias", (self.num_heads,), evenly_spaced(3.0, 6.0))
        self.scale = self._vector("scale", (inner,), "ones")
        self.skip = self._vector("skip", (inner,), "ones")
        self.output_dense = self._dense("output", inner, width, initializer=self.output_initializer)

    def get_initial_state(self, batch_size):
        """Return zeros: the last inputs of the convolution, C, n and m."""
        heads = batch_size, self.num_heads, self._head_dim
        c = ops.zeros((*heads, self._head_dim), self.state_dtype)
        state = c, ops.zeros(heads, self.state_dtype), ops.zeros(heads[:2], self.state_dtype)
        return self.convolution.get_initial_state(batch_size), state

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        last_inputs, state = state
        u, z = ops.split(self.input_dense(x), 2, axis=-1)  # [B, T, H K] each
        c, last_inputs = self.convolution(u, state=last_inputs, mask=mask, reset_mask=reset_mask, return_state=True)
        c = ops.silu(c)
        qkv = self.query_dense(c), self.key_dense(c), self.value_dense(u)
        gates = ops.matmul(ops.concatenate(qkv, axis=-1), ops.cast(self.gates_kernel, self.compute_dtype))
        log_i, f = ops.split(self._to_state_dtype(gates), 2, axis=-1)  # [B, T, H] each
        log_i = where_valid(mask, log_i + self._to_state_dtype(self.input_gate_bias), LOG_ZERO)
        log_f = where_valid(mask, -ops.softplus(-f - self._to_state_dtype(self.forget_gate_bias)))
        q, k, v = (self._heads(self._to_state_dtype(part)) for part in qkv)  # [B, T, H, K]
        h, state = mlstm(q, k / self._head_dim**0.5, v, log_i, log_f, state, reset_mask)
        scale = ops.reshape(self.scale, (self.num_heads, -1))
        h = merge_heads(normalize_heads(h, scale, self.epsilon, centered=True))
        h = h + self._to_state_dtype(self.skip) * self._to_state_dtype(c)
        y = self.output_dense(ops.cast(h, self.compute_dtype) * ops.silu(z))
        return y, (last_inputs, state)

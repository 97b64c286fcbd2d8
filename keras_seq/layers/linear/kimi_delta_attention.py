"""Kimi Delta Attention: Gated DeltaNet with a decay for each row of the state (Kimi Linear, 2025, arXiv:2510.26692).

q, k, v = silu(causal convolution of x W_q, x W_k, x W_v);  q, k of length 1
beta = sigmoid(x W_beta)                                        one for a head
alpha = exp(-A softplus(x W_1 W_2 + bias))                      one for each feature of the keys; A: one for a head
S' = diag(alpha) S + beta k (v - k (diag(alpha) S))             the delta rule
y = q S' / sqrt(K)
output = (RMS norm(y) sigmoid(x W_3 W_4)) W_out                 norm over the features of a head
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.linear.gated_delta_net import GatedDeltaNet
from keras_seq.layers.linear.mixer import CausalDepthwiseConv1D, TokenMixer, time_step_bias
from keras_seq.layers.normalization import normalize_length
from keras_seq.ops.matrix_recurrence import matrix_recurrence
from keras_seq.ops.tensor_checks import where_valid

CHUNK_SIZE = 32  # a little faster than 16, with half the matrices of chunks


@keras.saving.register_keras_serializable(package="keras_seq")
class KimiDeltaAttention(TokenMixer):
    """Linear attention with a delta rule, whose memory decays by a gate for each feature of the keys.

    ```python
    layer = KimiDeltaAttention(num_heads=2)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: H.
        key_dim: K, width of a head's queries and keys; D / H, rounded up, unless given.
        value_dim: V, width of a head's values; K unless given.
        kernel_size: Kernel size of the causal convolution.
        gate_rank: Width between the two matrices of the decay, and of the output's gate; V unless given.
        epsilon: Added to the mean square that a head's output is normalized by.
        use_bias: Whether the matrices of queries, keys, values, output and the last one of its gate add a bias.
        kernel_initializer: Initializer of all matrices except the last; the convolution has its own.
        output_initializer: Initializer of the last matrix, `[H V, D]`, which writes to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    The state is `(state of the convolution, S [B, H, K, V])`. A starts between 1 and 16.

    Masking: `mask [B, T]`; a masked position copies the state and is skipped by the convolution. The mask is passed on.
        `reset_mask [B, T]` is true where another document begins, from the initial state.
    Precision: matrices and convolution in the layer's compute dtype, the recurrence in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        kernel_size: int = 4,
        gate_rank: int | None = None,
        epsilon: float = 1e-5,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.key_dim = None if key_dim is None else checks.positive_integer("key_dim", key_dim)
        self.value_dim = None if value_dim is None else checks.positive_integer("value_dim", value_dim)
        self.gate_rank = None if gate_rank is None else checks.positive_integer("gate_rank", gate_rank)
        self.kernel_size = kernel_size
        self.epsilon = checks.positive_number("epsilon", epsilon)
        self.convolution = CausalDepthwiseConv1D(kernel_size, dtype=self.dtype_policy, name="convolution")

    get_initial_state = GatedDeltaNet.get_initial_state

    def build_weights(self, width):
        """Create the weights for inputs of this width."""
        key_dim = self.key_dim or -(-width // self.num_heads)
        value_dim = self.value_dim or key_dim
        self._head_shape, rank = (self.num_heads, key_dim, value_dim), self.gate_rank or value_dim
        keys, values = self.num_heads * key_dim, self.num_heads * value_dim
        self.query_dense = self._dense("query", width, keys)
        self.key_dense = self._dense("key", width, keys)
        self.value_dense = self._dense("value", width, values)
        self.beta_dense = self._dense("beta", width, self.num_heads, use_bias=False)
        self.dt_down = self._dense("dt_down", width, rank, use_bias=False)
        self.dt_up = self._dense("dt_up", rank, keys, use_bias=False)
        self.gate_down = self._dense("gate_down", width, rank, use_bias=False)
        self.gate_up = self._dense("gate_up", rank, values)
        self.convolution.build((None, None, 2 * keys + values))
        self.dt_bias = self._vector("dt_bias", (keys,), self._dt_bias_init)
        self.log_a = self._vector("log_a", (self.num_heads,), self._log_a_init)
        self.scale = self._vector("scale", (value_dim,), "ones")
        self.output_dense = self._dense("output", values, width, initializer=self.output_initializer)

    def _dt_bias_init(self, shape, dtype=None):
        """Return the same biases for each head, from slow to fast decays."""
        return ops.tile(time_step_bias(self._head_shape[1:2], dtype), [self.num_heads])

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        last_inputs, s = state
        qkv, last_inputs = self._queries_keys_values(x, last_inputs, mask, reset_mask)
        q, k, v = map(self._heads, qkv)
        q, k = normalize_length(q) / q.shape[-1] ** 0.5, normalize_length(k)
        beta = where_valid(mask, ops.sigmoid(self._to_state_dtype(self.beta_dense(x))))  # [B, T, H]
        steps = self._to_state_dtype(self.dt_up(self.dt_down(x))) + self._to_state_dtype(self.dt_bias)
        rates = ops.exp(ops.expand_dims(self._to_state_dtype(self.log_a), -1))  # [H, 1]
        y, s = matrix_recurrence(
            q,
            k * ops.expand_dims(beta, -1),
            v,
            ops.zeros_like(beta),
            s,
            channel_log_decay=where_valid(mask, -rates * self._heads(ops.softplus(steps))),
            a=-k,
            chunk_size=CHUNK_SIZE,
            reset_mask=reset_mask,
            clip=False,
        )
        y = self._gated_output(y, ops.sigmoid(self._to_state_dtype(self.gate_up(self.gate_down(x)))))
        return y, (last_inputs, s)

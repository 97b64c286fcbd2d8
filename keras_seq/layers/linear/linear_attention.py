"""Linear attention with gates and delta rules: a matrix S as the memory of keys and values, for each head `[K, V]`.

q, k, v = x W_q, x W_k, x W_v, of delta rules after a causal convolution and silu, with q and k of length 1
y = q S' / sqrt(K)
output = (RMS norm(y) silu(x W_gate)) W_out     norm over the features of a head

Gated linear attention (Yang et al., 2024, arXiv:2312.06635): a decay for each row of the state.

alpha = sigmoid(x W_1 W_2 + b)^(1/16)
S' = diag(alpha) S + k v

Gated DeltaNet (Yang et al., 2025, arXiv:2412.06464): a memory that corrects what it holds for a key.

beta = sigmoid(x W_beta);  alpha = exp(-A softplus(x W_alpha + bias))           one of each for a head
S' = alpha S + beta k (v - k (alpha S))         the delta rule: k (alpha S) is what S holds for k
     and n - 1 times more, without alpha and with a further k, v and beta

With n > 1 it is Gated DeltaProduct (Siems et al., 2025, arXiv:2502.10297): the state is multiplied by a product of n
matrices I - beta k k^T, generalized Householder matrices. With beta up to 2 these can reflect, as in a permutation of
two states, and their products can rotate. In Qwen3-Next and Qwen3.5 several heads of values share one of queries and
keys, and the convolution adds no bias.

Kimi Delta Attention (Kimi Linear, 2025, arXiv:2510.26692): Gated DeltaNet with a decay for each row of the state, and
sigmoid(x W_3 W_4) as the gate of the output.

alpha = exp(-A softplus(x W_1 W_2 + bias))                      one for each feature of the keys; A: one for a head
S' = diag(alpha) S + beta k (v - k (diag(alpha) S))
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.linear.mixer import CausalDepthwiseConv1D, TokenMixer, time_step_bias
from keras_seq.layers.normalization import normalize_length, split_heads
from keras_seq.ops.matrix_recurrence import matrix_recurrence
from keras_seq.ops.tensor_checks import where_valid

TEMPERATURE = 16.0  # of the gates: the decay is 0.96 where the pre-activation is 0
GLA_CHUNK_SIZE = 16  # decays down to exp(-5) in a position are exact: pre-activations down to -80


@keras.saving.register_keras_serializable(package="keras_seq")
class GatedLinearAttention(TokenMixer):
    """Attention without softmax, whose memory of keys and values decays by a gate for each feature of the keys.

    ```python
    layer = GatedLinearAttention(num_heads=2)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: H.
        key_dim: K, width of a head's queries and keys; D / (2 H), rounded up, unless given.
        value_dim: V, width of a head's values; 2 K unless given.
        gate_rank: Width between the two matrices of the decay.
        epsilon: Added to the mean square that a head's output is normalized by.
        use_bias: Whether the matrices of queries, keys, values, gate and output add a bias.
        kernel_initializer: Initializer of all matrices except the last.
        output_initializer: Initializer of the last matrix, `[H V, D]`, which writes to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    The state is S `[B, H, K, V]`.

    Masking: `mask [B, T]`; a masked position copies the state. The mask is passed on. `reset_mask [B, T]` is true
        where another document begins, from the initial state.
    Precision: matrices in the layer's compute dtype, the recurrence in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        gate_rank: int = 16,
        epsilon: float = 1e-5,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.key_dim = None if key_dim is None else checks.positive_integer("key_dim", key_dim)
        self.value_dim = None if value_dim is None else checks.positive_integer("value_dim", value_dim)
        self.gate_rank = checks.positive_integer("gate_rank", gate_rank)
        self.epsilon = checks.positive_number("epsilon", epsilon)

    def build_weights(self, width):
        """Create the weights for inputs of this width."""
        key_dim = self.key_dim or -(-width // (2 * self.num_heads))
        self._head_shape = self.num_heads, key_dim, self.value_dim or 2 * key_dim
        keys, values = self.num_heads * key_dim, self.num_heads * self._head_shape[2]
        self.query_dense = self._dense("query", width, keys)
        self.key_dense = self._dense("key", width, keys)
        self.value_dense = self._dense("value", width, values)
        self.gate_dense = self._dense("gate", width, values)
        self.decay_down = self._dense("decay_down", width, self.gate_rank, use_bias=False)
        self.decay_up = self._dense("decay_up", self.gate_rank, keys, use_bias=True)
        self.scale = self._vector("scale", self._head_shape[2:], "ones")
        self.output_dense = self._dense("output", values, width, initializer=self.output_initializer)

    def get_initial_state(self, batch_size):
        """Return zeros, S `[B, H, K, V]`."""
        return ops.zeros((batch_size, *self._head_shape), self.state_dtype)

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        parts = self.query_dense(x), self.key_dense(x), self.value_dense(x), self.decay_up(self.decay_down(x))
        q, k, v, decay = (self._to_state_dtype(self._heads(part)) for part in parts)  # [B, T, H, K], v [B, T, H, V]
        log_decay = where_valid(mask, -ops.softplus(-decay) / TEMPERATURE)
        y, state = matrix_recurrence(
            q / k.shape[-1] ** 0.5,
            where_valid(mask, k),
            v,
            ops.zeros_like(v[..., 0]),
            state,
            channel_log_decay=log_decay,
            reset_mask=reset_mask,
            chunk_size=GLA_CHUNK_SIZE,
        )
        y = self._gated_output(y, ops.silu(self._to_state_dtype(self.gate_dense(x))))
        return y, state


def _repeat_heads(x, count):
    """Return `[B, T, H, K]` with each head `count` times, one after the other: `ops.repeat`, which no page has."""
    if count == 1:
        return x
    shape = *ops.shape(x)[:2], count * x.shape[2], x.shape[3]
    return ops.reshape(ops.stack([x] * count, axis=3), shape)


@keras.saving.register_keras_serializable(package="keras_seq")
class GatedDeltaNet(TokenMixer):
    """Linear attention with a gated delta rule, which replaces what the state holds for a key instead of adding to it.

    ```python
    layer = GatedDeltaNet(num_heads=2)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: H, the heads of values, of beta and of the decay.
        key_dim: K, width of a head's queries and keys; 3 D / (4 H), rounded up, unless given.
        value_dim: V, width of a head's values; 2 K unless given.
        kernel_size: Kernel size of the causal convolution.
        num_householder: n, the delta rules at a position; Gated DeltaProduct has 2 or more.
        allow_neg_eigval: Whether beta is between 0 and 2, as in Gated DeltaProduct, not between 0 and 1, so that the
            state's transitions have eigenvalues between -1 and 1. Parity and permutations need negative ones.
        epsilon: Added to the mean square that a head's output is normalized by.
        num_key_heads: Heads of queries and keys, a divisor of H; H unless given. H / num_key_heads heads of values that
            follow each other share one of them.
        use_conv_bias: Whether the convolution adds a bias.
        use_bias: Whether the matrices of queries, keys, values, gate and output add a bias.
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
        num_householder: int = 1,
        allow_neg_eigval: bool = False,
        epsilon: float = 1e-5,
        num_key_heads: int | None = None,
        use_conv_bias: bool = True,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.key_dim = None if key_dim is None else checks.positive_integer("key_dim", key_dim)
        self.value_dim = None if value_dim is None else checks.positive_integer("value_dim", value_dim)
        self.kernel_size = kernel_size
        self.num_householder = checks.positive_integer("num_householder", num_householder)
        self.allow_neg_eigval = checks.boolean("allow_neg_eigval", allow_neg_eigval)
        self.epsilon = checks.positive_number("epsilon", epsilon)
        self.num_key_heads = num_key_heads
        if num_key_heads is not None and self.num_heads % checks.positive_integer("num_key_heads", num_key_heads):
            raise ValueError(f"num_key_heads={num_key_heads}; expected a divisor of {num_heads=}.")
        self.use_conv_bias = checks.boolean("use_conv_bias", use_conv_bias)
        self.convolution = CausalDepthwiseConv1D(
            kernel_size, use_bias=use_conv_bias, dtype=self.dtype_policy, name="convolution"
        )

    def build_weights(self, width):
        """Create the weights for inputs of this width."""
        key_dim = self.key_dim or -(-3 * width // (4 * self.num_heads))
        self._head_shape = self.num_heads, key_dim, self.value_dim or 2 * key_dim
        self._num_key_heads = self.num_key_heads or self.num_heads
        keys, values = self._num_key_heads * key_dim, self.num_heads * self._head_shape[2]
        count = self.num_householder
        self.query_dense = self._dense("query", width, keys)
        self.key_dense = self._dense("key", width, count * keys)
        self.value_dense = self._dense("value", width, count * values)
        self.gate_dense = self._dense("gate", width, values)
        self.beta_dense = self._dense("beta", width, count * self.num_heads, use_bias=False)
        self.dt_dense = self._dense("dt", width, self.num_heads, use_bias=False)
        self.convolution.build((None, None, keys + count * (keys + values)))
        self.dt_bias = self._vector("dt_bias", (self.num_heads,), time_step_bias)
        self.log_a = self._vector("log_a", (self.num_heads,), self._log_a_init)
        self.scale = self._vector("scale", self._head_shape[2:], "ones")
        self.output_dense = self._dense("output", values, width, initializer=self.output_initializer)

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        last_inputs, s = state
        (q, k, v), last_inputs = self._queries_keys_values(x, last_inputs, mask, reset_mask)
        count = self.num_householder
        q, k = split_heads(q, self._num_key_heads), split_heads(k, count * self._num_key_heads)
        v = split_heads(v, count * self.num_heads)  # [B, T, n H, V]; q [B, T, H, K] and k [B, T, n H, K] below
        q, k = normalize_length(q) / q.shape[-1] ** 0.5, normalize_length(k)
        q, k = (_repeat_heads(part, self.num_heads // self._num_key_heads) for part in (q, k))
        beta = where_valid(mask, ops.sigmoid(self._to_state_dtype(self.beta_dense(x))))
        beta = 2.0 * beta if self.allow_neg_eigval else beta
        delta = ops.softplus(self._to_state_dtype(self.dt_dense(x)) + self._to_state_dtype(self.dt_bias))
        log_decay = where_valid(mask, -ops.exp(self._to_state_dtype(self.log_a)) * delta)
        y, s = matrix_recurrence(q, k * ops.expand_dims(beta, -1), v, log_decay, s, a=-k, reset_mask=reset_mask)
        y = self._gated_output(y, ops.silu(self._to_state_dtype(self.gate_dense(x))))
        return y, (last_inputs, s)


KDA_CHUNK_SIZE = 32  # a little faster than 16, with half the matrices of chunks


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
            chunk_size=KDA_CHUNK_SIZE,
            reset_mask=reset_mask,
            clip=False,
        )
        y = self._gated_output(y, ops.sigmoid(self._to_state_dtype(self.gate_up(self.gate_down(x)))))
        return y, (last_inputs, s)

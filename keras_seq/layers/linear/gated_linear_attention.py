"""Gated linear attention (Yang et al., 2024, arXiv:2312.06635): a state with a decay for each of its rows.

q, k, v = x W_q, x W_k, x W_v;  alpha = sigmoid(x W_1 W_2 + b)^(1/16)
S' = diag(alpha) S + k v                        for each head: [K, V]
y = q S' / sqrt(K)
output = (RMS norm(y) silu(x W_gate)) W_out     norm over the features of a head
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.linear.mixer import TokenMixer
from keras_seq.ops.matrix_recurrence import matrix_recurrence
from keras_seq.ops.tensor_checks import where_valid

TEMPERATURE = 16.0  # of the gates: the decay is 0.96 where the pre-activation is 0
CHUNK_SIZE = 16  # decays down to exp(-5) in a position are exact: pre-activations down to -80


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
            chunk_size=CHUNK_SIZE,
        )
        y = self._gated_output(y, ops.silu(self._to_state_dtype(self.gate_dense(x))))
        return y, state

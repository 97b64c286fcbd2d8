"""Selective state spaces: Mamba's mixer and Mamba-2's.

The Mamba block without its residual connection (Gu & Dao, 2023, figure 3).

u, gate = x W_u, x W_gate                               [B, T, E] each
u = silu(causal convolution of u)
delta = softplus(u W_1 W_2 + bias);  B = u W_B;  C = u W_C
y = (selective scan of u + skip u) silu(gate)
output = y W_out                                        [B, T, D]
"""

import functools

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import freeze_inner_layers, same_shape
from keras_seq.layers.base.state import MAX_FACTOR, ExplicitState
from keras_seq.layers.dense import inner_dense
from keras_seq.layers.linear.mixer import CausalDepthwiseConv1D, TokenMixer, time_step_bias
from keras_seq.layers.normalization import merge_heads, normalize_heads, split_heads
from keras_seq.ops.matrix_recurrence import matrix_recurrence
from keras_seq.ops.position_wise import dense as matmul
from keras_seq.ops.selective_scan import selective_scan
from keras_seq.ops.tensor_checks import where_valid


@keras.saving.register_keras_serializable(package="keras_seq")
class SelectiveStateSpace(ExplicitState):
    """A state-space layer whose time step, input and output matrices depend on the input: Mamba's mixer.

    ```python
    layer = SelectiveStateSpace(state_dim=16)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        state_dim: N, size of the state of each inner feature.
        expand: E / D, number of inner features per outer feature.
        kernel_size: Kernel size of the causal convolution.
        dt_rank: Width between the two matrices of the time step; D / 16, rounded up, unless given.
        use_bias: Whether the input and output matrices add a bias.
        kernel_initializer: Initializer of all matrices except the last; the convolution has its own.
        output_initializer: Initializer of the last matrix, `[E, D]`, which writes to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    The state is `(state of the convolution, h [B, E, N])`. A starts at -1, -2, ..., -N for each feature.

    Masking: `mask [B, T]`; a masked position copies the state and is skipped by the convolution. The mask is passed on.
    `reset_mask [B, T]` is true where another document begins, from the zero state.
    Precision: matrices and convolution in the layer's compute dtype, time steps and the scan in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    compute_output_shape = same_shape
    largest_input = MAX_FACTOR

    def __init__(
        self,
        state_dim: int = 16,
        expand: int = 2,
        kernel_size: int = 4,
        dt_rank: int | None = None,
        use_bias: bool = False,
        kernel_initializer="glorot_uniform",
        output_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.state_dim = checks.positive_integer("state_dim", state_dim)
        self.expand = checks.positive_integer("expand", expand)
        self.kernel_size = kernel_size
        self.dt_rank = None if dt_rank is None else checks.positive_integer("dt_rank", dt_rank)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)
        self.convolution = CausalDepthwiseConv1D(kernel_size, dtype=self.dtype_policy, name="convolution")

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        width = self._read_width(inputs_shape)
        inner = self.expand * width
        rank = self.dt_rank or -(-width // 16)
        dense = functools.partial(inner_dense, self)
        kernel, output = self.kernel_initializer, self.output_initializer
        self.input_dense = dense("input", width, 2 * inner, self.use_bias, kernel)
        self.convolution.build((*inputs_shape[:-1], inner))
        self.dt_down = dense("dt_down", inner, rank, False, kernel)
        self.dt_up = dense("dt_up", rank, inner, True, kernel, bias_initializer=time_step_bias, autocast=False)
        self.b_dense = dense("b", inner, self.state_dim, False, kernel)
        self.c_dense = dense("c", inner, self.state_dim, False, kernel)
        self.log_a = self.add_weight(shape=(inner, self.state_dim), initializer=self._log_a_init, name="log_a")
        self.skip = self.add_weight(shape=(inner,), initializer="ones", name="skip")
        self.output_dense = dense("output", inner, width, self.use_bias, output)
        freeze_inner_layers(self)

    def _log_a_init(self, shape, dtype=None):
        """Return the logarithms of -A = 1 .. N."""
        return ops.tile(ops.log(ops.arange(1, shape[1] + 1, dtype=dtype or "float32")), (shape[0], 1))

    def get_initial_state(self, batch_size):
        """Return zeros: the last inputs of the convolution, and h `[B, E, N]`."""
        h = ops.zeros((batch_size, *self.log_a.shape), self.state_dtype)
        return self.convolution.get_initial_state(batch_size), h

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        last_inputs, h = state
        u, gate = ops.split(self.input_dense(x), 2, axis=-1)  # [B, T, E] each
        u, last_inputs = self.convolution(u, state=last_inputs, mask=mask, reset_mask=reset_mask, return_state=True)
        u = ops.silu(u)
        steps = matmul(self.dt_down(u), ops.cast(self.dt_up.kernel, self.compute_dtype), None)
        # the bias, about -5, in float32: beside it half precision loses what depends on the inputs
        delta = ops.softplus(self._to_state_dtype(steps) + self._to_state_dtype(self.dt_up.bias))  # [B, T, E]
        delta = where_valid(mask, delta)  # a step of zero copies the state
        a = -ops.exp(self._to_state_dtype(self.log_a))
        b, c, u = map(self._to_state_dtype, (self.b_dense(u), self.c_dense(u), u))  # b and c [B, T, N]
        y, h = selective_scan(u, delta, a, b, c, h, reset_mask)
        y = ops.cast(y + self._to_state_dtype(self.skip) * u, self.compute_dtype) * ops.silu(gate)
        return self.output_dense(y), (last_inputs, h)


# Mamba-2's mixer: a state space with one decay for each head (Dao & Gu, 2024, arXiv:2405.21060, section 7).
#
# gate, u = x W_gate, x W_u;  B, C = x W_B, x W_C;  delta = softplus(x W_delta + bias)
# u, B, C = silu(causal convolution of u, B, C)
# S' = exp(-delta A) S + delta B u                 for each head: [N, P];  B, C [N] are shared by the heads of a group
# y = C S' + skip u
# output = RMS norm(y silu(gate)) W_out


def log_head_numbers(shape, dtype=None):
    """Return log 1, log 2, ..., log H."""
    return ops.log(ops.arange(1, shape[0] + 1, dtype=dtype or "float32"))


@keras.saving.register_keras_serializable(package="keras_seq")
class Mamba2(TokenMixer):
    """Mamba-2's mixer: a causal convolution and a linear recurrence with a matrix and one decay for each head.

    ```python
    layer = Mamba2(num_heads=4, head_dim=16, state_dim=32)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: H.
        head_dim: P, width of a head. The inner width is H P; as published, 2 D.
        state_dim: N, rows of the state of a head.
        num_groups: Number of groups of heads with a B and C of their own, a divisor of H.
        kernel_size: Kernel size of the causal convolution.
        epsilon: Added to the mean square that the output is normalized by, over the H P / `num_groups` features of a
            group.
        use_bias: Whether the input and output matrices add a bias.
        kernel_initializer: Initializer of the input matrices; the convolution has its own.
        output_initializer: Initializer of the last matrix, `[H P, D]`, which writes to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    The state is `(state of the convolution, S [B, H, N, P])`. A starts at 1, 2, ..., H.

    Masking: `mask [B, T]`; a masked position copies the state and is skipped by the convolution. The mask is passed on.
        `reset_mask [B, T]` is true where another document begins, from the initial state.
    Precision: matrices and convolution in the layer's compute dtype, the recurrence in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int = 64,
        state_dim: int = 128,
        num_groups: int = 1,
        kernel_size: int = 4,
        epsilon: float = 1e-5,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.head_dim = checks.positive_integer("head_dim", head_dim)
        self.state_dim = checks.positive_integer("state_dim", state_dim)
        self.num_groups = checks.positive_integer("num_groups", num_groups)
        if num_heads % num_groups:
            raise ValueError(f"num_groups={num_groups}; expected a divisor of num_heads={num_heads}.")
        self.kernel_size = kernel_size
        self.epsilon = checks.positive_number("epsilon", epsilon)
        self.convolution = CausalDepthwiseConv1D(kernel_size, dtype=self.dtype_policy, name="convolution")

    def build_weights(self, width):
        """Create the weights for inputs of this width."""
        inner, shared = self.num_heads * self.head_dim, 2 * self.num_groups * self.state_dim
        self._head_shape = self.num_heads, self.state_dim, self.head_dim
        self.input_dense = self._dense("input", width, 2 * inner)
        self.bc_dense = self._dense("bc", width, shared)
        self.dt_dense = self._dense("dt", width, self.num_heads)
        self.convolution.build((None, None, inner + shared))
        self.dt_bias = self._vector("dt_bias", (self.num_heads,), time_step_bias)
        self.log_a = self._vector("log_a", (self.num_heads,), log_head_numbers)
        self.skip = self._vector("skip", (self.num_heads,), "ones")
        self.scale = self._vector("scale", (inner,), "ones")
        self.output_dense = self._dense("output", inner, width, initializer=self.output_initializer)

    def sequence(self, x, state, mask, reset_mask):
        """Compute the outputs `[B, T, D]` and the next state."""
        last_inputs, s = state
        gate, u = ops.split(self.input_dense(x), 2, axis=-1)  # [B, T, H P] each
        u = ops.concatenate([u, self.bc_dense(x)], axis=-1)
        u, last_inputs = self.convolution(u, state=last_inputs, mask=mask, reset_mask=reset_mask, return_state=True)
        u, inner = self._to_state_dtype(ops.silu(u)), gate.shape[-1]
        b, c = (self._of_heads(v) for v in ops.split(u[..., inner:], 2, axis=-1))
        u = self._heads(u[..., :inner])  # [B, T, H, P]; b and c [B, T, H, N]
        delta = ops.softplus(self._to_state_dtype(self.dt_dense(x)) + self._to_state_dtype(self.dt_bias))  # [B, T, H]
        delta = where_valid(mask, delta)  # a step of zero copies the state
        log_decay = -delta * ops.exp(self._to_state_dtype(self.log_a))
        y, s = matrix_recurrence(c, b, ops.expand_dims(delta, -1) * u, log_decay, s, reset_mask=reset_mask)
        y = merge_heads(y + ops.expand_dims(self._to_state_dtype(self.skip), -1) * u)
        y = self._normalize(y * ops.silu(self._to_state_dtype(gate)))
        return self.output_dense(ops.cast(y, self.compute_dtype)), (last_inputs, s)

    def _of_heads(self, v):
        """Return B or C `[B, T, G N]` as `[B, T, H, N]`, or with one head for all if there is one group."""
        v = split_heads(v, self.num_groups)
        return v if self.num_groups == 1 else ops.repeat(v, self.num_heads // self.num_groups, axis=2)

    def _normalize(self, y):
        scale = ops.reshape(self.scale, (self.num_groups, -1))
        return merge_heads(normalize_heads(split_heads(y, self.num_groups), scale, self.epsilon))

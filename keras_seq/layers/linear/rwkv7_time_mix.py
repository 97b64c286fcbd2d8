"""RWKV-7's time mixing, and the token shift before it: a learned mixture of each position with the position before it.

x_t + (x_{t-1} - x_t) mu               mu: [D];  x before the start: 0
"""

import math

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.state import finite_inputs, with_nan
from keras_seq.layers.linear.mixer import TokenMixer, evenly_spaced, gather_positions, shift_ramp
from keras_seq.layers.normalization import merge_heads, normalize_heads, normalize_length
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import count_elements, true_first
from keras_seq.ops.matrix_recurrence import matrix_recurrence
from keras_seq.ops.tensor_checks import where_valid


def previous_positions(x, last, mask=None, reset_mask=None):
    """Return the position before each one, `[B, T, D]`, and the last, `[B, D]`, given the one before the first.

    Masked positions are skipped; before a position where `reset_mask` is true there are zeros.
    """
    length, valid = ops.shape(x)[1], 1
    if mask is None:
        previous, last = ops.concatenate([ops.expand_dims(last, 1), x], axis=1)[:, :-1], x[:, -1]
    else:
        positions = ops.concatenate([ops.expand_dims(last, 1), gather_positions(x, true_first(mask))], axis=1)
        valid = ops.cast(mask, "int32")
        count = ops.cumsum(valid, axis=1)
        previous, last = gather_positions(positions, count - valid), gather_positions(positions, count[:, -1:])[:, 0]
    if reset_mask is not None:
        count = count_elements(length, mask, 1, reset_mask)  # in the own document
        previous = ops.where(ops.expand_dims(count > valid, -1), previous, 0)
        last = ops.where(count[:, -1:] > 0, last, 0)
    return previous, last


# RWKV-7's time mixing (Peng et al., 2025, "RWKV-7 Goose", arXiv:2503.14456).
#
# x_c = x + (previous x - x) mu_c                  token shift, one mu for each of r, w, k, v, a, g
# r, k, v = x_r W_r, x_k W_k, x_v W_v
# w = exp(-exp(-1/2) sigmoid(w_0 + tanh(x_w W_1) W_2))               decay of each channel, from 0.545 to 1
# a = sigmoid(a_0 + x_a A_1 A_2)                                     in-context learning rate of each channel
# g = sigmoid(x_g G_1) G_2
# kappa = (k k_k) of length 1 for each head;  k = k (1 + (a - 1) k_a)
# S' = diag(w) S + (a kappa) (-kappa S) + k v                        for each head: [K, K]
# y = group norm(r S') + (sum of r k r_k) v
# output = (y g) W_out
#
# in all layers but the first: v = v + (v of the first layer - v) sigmoid(v_0 + x_v V_1 V_2)


MAX_DECAY_RATE = math.exp(-0.5)
SHIFT_POWERS = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}


@keras.saving.register_keras_serializable(package="keras_seq")
class RWKV7TimeMix(TokenMixer):
    """RWKV-7's time mixing: a memory with a decay and a learning rate for each channel, by a generalized delta rule.

    ```python
    layer = RWKV7TimeMix(num_heads=2)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        num_heads: H.
        head_dim: K, width of a head; D / H, rounded up, unless given.
        value_residual: Whether values are mixed with those of the first layer of a stack, `first_value`.
        rank: Width between the two matrices of decay, learning rate and gate (twice as wide), and the value's
            residual; 2.5 sqrt(D), rounded to a multiple of 32, unless given.
        kernel_initializer: Initializer of the matrices except the last; the first of two that follow each other
            starts at zero.
        output_initializer: Initializer of the last matrix, `[H K, D]`, which writes to the residual stream.
        **kwargs: `use_bias`, for r, k, v and the output, and those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, D]`.
        state: From `get_initial_state` or the previous call.
        mask: `[B, T]`; a masked position copies the state. The mask is passed on.
        inputs_mask: What Keras passes for `mask` when the call has other tensors than the inputs.
        reset_mask: `[B, T]`, true where another document begins, from the initial state.
        first_value: `[B, T, H K]`, required with `value_residual`.
        return_state: Whether to return the state too, `(last inputs [B, D], S [B, H, K, K])`.
        return_value: Whether to return the values `[B, T, H K]` too.

    Returns:
        y `[B, T, D]`, or a tuple `(y, value, state)` of y and the requested outputs, in this order.

    Precision: matrices in the layer's compute dtype, the recurrence in float32 or wider.

    Raises:
        ValueError: If an argument is out of its range, the inputs are not `[B, T, D]`, or `first_value` is given
            without `value_residual` or the reverse.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int | None = None,
        value_residual: bool = False,
        rank: int | None = None,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.head_dim = None if head_dim is None else checks.positive_integer("head_dim", head_dim)
        self.value_residual = checks.boolean("value_residual", value_residual)
        self.rank = None if rank is None else checks.positive_integer("rank", rank)

    def build_weights(self, width):
        """Create the weights for inputs of this width."""
        self._width, self._head_dim = width, self.head_dim or -(-width // self.num_heads)
        inner = self.num_heads * self._head_dim
        rank = self.rank or max(32, 32 * round(2.5 * width**0.5 / 32))
        for name, power in SHIFT_POWERS.items():
            setattr(self, f"shift_{name}", self._vector(f"shift_{name}", (width,), shift_ramp(power)))
        self.receptance_dense = self._dense("receptance", width, inner)
        self.key_dense = self._dense("key", width, inner)
        self.value_dense = self._dense("value", width, inner)
        self._low_rank("decay", width, rank, inner, evenly_spaced(-6.5, -1.5))
        self._low_rank("rate", width, rank, inner, "zeros")
        self._low_rank("gate", width, 2 * rank, inner, None)
        if self.value_residual:
            self._low_rank("residual", width, rank, inner, "ones")
        self.key_scale = self._vector("key_scale", (inner,), keras.initializers.Constant(0.85))
        self.key_rate = self._vector("key_rate", (inner,), "ones")
        self.bonus = self._vector("bonus", (self.num_heads, self._head_dim))
        self.gamma = self._vector("gamma", (inner,), "ones")
        self.beta = self._vector("beta", (inner,))
        self.output_dense = self._dense("output", inner, width, initializer=self.output_initializer)

    def _low_rank(self, name, width, rank, inner, bias_initializer):
        setattr(self, f"{name}_down", self._dense(f"{name}_down", width, rank, False, keras.initializers.Zeros()))
        setattr(self, f"{name}_up", self._dense(f"{name}_up", rank, inner, False))
        if bias_initializer is not None:
            setattr(self, f"{name}_bias", self._vector(f"{name}_bias", (inner,), bias_initializer))

    def get_initial_state(self, batch_size):
        """Return zeros: the last inputs `[B, D]`, and S `[B, H, K, K]`."""
        shape = batch_size, self.num_heads, self._head_dim, self._head_dim
        return ops.zeros((batch_size, self._width), self.compute_dtype), ops.zeros(shape, self.state_dtype)

    def call(
        self,
        inputs,
        state=None,
        mask=None,
        inputs_mask=None,
        reset_mask=None,
        first_value=None,
        return_state: bool = False,
        return_value: bool = False,
    ):
        """Apply the layer; the class docstring describes the call arguments."""
        if (first_value is None) == self.value_residual:
            raise ValueError(
                f"{self.name}: first_value is {'missing' if first_value is None else 'given'}; expected it with, and "
                f"only with, value_residual=True."
            )
        x, (last, s), mask = self.prepare_inputs(inputs, state, inputs_mask if mask is None else mask)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        x, (last, s), is_nan = finite_inputs(x, (last, s), reset_mask, self.largest_input)
        previous, last = previous_positions(x, last, mask, reset_mask)

        def shifted(name):
            return x + (previous - x) * ops.cast(getattr(self, f"shift_{name}"), x.dtype)

        r, k, v = (
            self._to_state_dtype(dense(shifted(name)))
            for name, dense in (("r", self.receptance_dense), ("k", self.key_dense), ("v", self.value_dense))
        )
        log_w = -MAX_DECAY_RATE * ops.sigmoid(self._up("decay", ops.tanh(self.decay_down(shifted("w")))))
        a = ops.sigmoid(self._up("rate", self.rate_down(shifted("a"))))
        g = self.gate_up(ops.sigmoid(self.gate_down(shifted("g"))))
        value = v
        if first_value is not None:
            share = ops.sigmoid(self._up("residual", self.residual_down(shifted("v"))))
            v = v + (self._to_state_dtype(where_valid(mask, first_value)) - v) * share
        kappa = normalize_length(self._heads(k * self._to_state_dtype(self.key_scale)), 1e-12)
        k = k * (1 + (a - 1) * self._to_state_dtype(self.key_rate))
        r, k, v, a, log_w = map(self._heads, (r, where_valid(mask, k), v, a, where_valid(mask, log_w)))  # [B, T, H, K]
        kappa = where_valid(mask, kappa)
        y, s = matrix_recurrence(
            r,
            k,
            v,
            ops.zeros_like(v[..., 0]),
            s,
            channel_log_decay=log_w,
            a=-kappa * ops.exp(-log_w),  # matrix_recurrence reads the decayed state, RWKV the one before its decay
            b=kappa * a,
            reset_mask=reset_mask,
        )
        gamma, beta = (ops.reshape(v, (self.num_heads, -1)) for v in (self.gamma, self.beta))
        y = normalize_heads(y, gamma, self._head_dim * 1e-5, beta, centered=True)
        y = y + ops.sum(r * k * self._to_state_dtype(self.bonus), axis=-1, keepdims=True) * v
        y = self.output_dense(ops.cast(merge_heads(y), self.compute_dtype) * g)
        y, state = with_nan(is_nan, y, (last, s))
        outputs = y, *((value,) if return_value else ()), *((state,) if return_state else ())
        return outputs if len(outputs) > 1 else y

    def _up(self, name, x):
        bias = self._to_state_dtype(getattr(self, f"{name}_bias"))
        return self._to_state_dtype(getattr(self, f"{name}_up")(x)) + bias

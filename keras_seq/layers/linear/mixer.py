"""Share what linear recurrent layers have: a base class with heads, initializers, the short causal convolution."""

import itertools
import math

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import freeze_inner_layers, same_shape
from keras_seq.layers.base.state import MAX_FACTOR, ExplicitState, join_finite, split_finite
from keras_seq.layers.dense import inner_dense
from keras_seq.layers.normalization import merge_heads, normalize_heads, split_heads
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import segment_numbers, true_first


def decay_radius(shape, dtype=None):
    """Return Lambda, for which the squares of exp(-softplus(Lambda)), the decays, are evenly spaced, as in a ring."""
    squares = ops.linspace(0.9**2, 0.999**2, shape[0], dtype=dtype or "float32")
    return ops.log(ops.expm1(-0.5 * ops.log(squares)))


@keras.saving.register_keras_serializable(package="keras_seq")
def time_step_bias(shape, dtype=None):
    """Return biases whose softplus, the time step, is log-uniformly spaced between 0.001 and 0.1."""
    log_dt = ops.linspace(math.log(1e-3), math.log(0.1), shape[0], dtype=dtype or "float32")
    return ops.log(ops.expm1(ops.exp(log_dt)))


def evenly_spaced(first: float, last: float):
    """Return an initializer of a vector with evenly spaced numbers."""
    return lambda shape, dtype=None: ops.linspace(first, last, shape[0], dtype=dtype or "float32")


def shift_ramp(power: float):
    """Return an initializer of mu: 1 - (n / D)^power for feature n, so the first features see the previous position."""
    return lambda shape, dtype=None: 1.0 - ops.power(ops.arange(shape[0], dtype=dtype or "float32") / shape[0], power)


class TokenMixer(ExplicitState):
    """Base class with heads, projections and the arguments that such layers share."""

    compute_output_shape = same_shape
    largest_input = MAX_FACTOR

    def __init__(
        self,
        num_heads: int,
        use_bias: bool = False,
        kernel_initializer="glorot_uniform",
        output_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = checks.positive_integer("num_heads", num_heads)
        self.use_bias = checks.boolean("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)

    def build(self, inputs_shape):
        """Check the shape of the inputs, and let the subclass create the weights by `build_weights(width)`."""
        width = self._read_width(inputs_shape)
        self.build_weights(width)
        freeze_inner_layers(self)

    def get_initial_state(self, batch_size):
        """Return zeros: the last inputs of the convolution, and the matrices of the heads, of `_head_shape`."""
        s = ops.zeros((batch_size, *self._head_shape), self.state_dtype)
        return self.convolution.get_initial_state(batch_size), s

    def _dense(self, name, width, units, use_bias=None, initializer=None):
        initializer = self.kernel_initializer if initializer is None else initializer
        return inner_dense(self, name, width, units, self.use_bias if use_bias is None else use_bias, initializer)

    def _vector(self, name, shape, initializer="zeros"):
        return self.add_weight(shape=shape, initializer=initializer, name=name)

    def _log_a_init(self, shape, dtype=None):
        """Return the logarithms of numbers from 1 to 16, evenly spaced."""
        return ops.log(ops.linspace(1.0, 16.0, shape[0], dtype=dtype or "float32"))

    def _heads(self, x):
        return split_heads(x, self.num_heads)

    def _queries_keys_values(self, x, last_inputs, mask, reset_mask):
        """Return q, k and v, the silu of the convolution of x W_q, x W_k, x W_v, and the convolution's last inputs."""
        denses = self.query_dense, self.key_dense, self.value_dense
        x, last_inputs = self.convolution(
            ops.concatenate([dense(x) for dense in denses], axis=-1),
            state=last_inputs,
            mask=mask,
            reset_mask=reset_mask,
            return_state=True,
        )
        ends = [*itertools.accumulate(dense.units for dense in denses)]
        return ops.split(self._to_state_dtype(ops.silu(x)), ends[:2], axis=-1), last_inputs

    def _gated_output(self, y, gate):
        """Return (RMS norm(y) gate) W_out for y `[B, T, H, V]`, normalized over the features of a head."""
        y = merge_heads(normalize_heads(y, self.scale, self.epsilon)) * gate
        return self.output_dense(ops.cast(y, self.compute_dtype))


# A short causal convolution over the positions, separately for each feature (depthwise).
#
#     y_t = sum_{k=0}^{K-1} w_k x_{t-k} + bias              w_k, bias: [D];  x before the start: 0
#
# K is the kernel size, usually 4. Before a state-space or a gated layer it mixes neighboring positions directly (H3: Fu
# et al., 2023; Mamba: Gu & Dao, 2023).


@keras.saving.register_keras_serializable(package="keras_seq")
class CausalDepthwiseConv1D(ExplicitState):
    """A depthwise causal convolution whose state is its last inputs.

    ```python
    layer = CausalDepthwiseConv1D(4)
    y, state = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    ```

    Args:
        kernel_size: K, at least 2: number of positions that an output depends on, its own included.
        kernel_initializer: Initializer of the kernel `[K, D]`; row k is the weight of the input k positions before.
            Choose one that scales with K alone, as `"lecun_uniform"` does: every output is a sum of K numbers, whatever
            D.
        bias_initializer: Initializer of the bias `[D]`.
        use_bias: Whether a bias is added.
        **kwargs: Those of `keras.layers.Layer`.

    The state is the last K - 1 inputs, `[B, K - 1, D]`.

    Masking: `mask [B, T]`; a masked position is skipped: it does not enter the convolution or the state, and its output
    is zero. `reset_mask [B, T]` is true where another document begins, before which inputs count as zeros.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    loops_over_positions = False

    compute_output_shape = same_shape

    def __init__(
        self,
        kernel_size: int = 4,
        kernel_initializer="lecun_uniform",
        bias_initializer="zeros",
        use_bias: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.kernel_size = checks.positive_integer("kernel_size", kernel_size)
        if self.kernel_size < 2:
            raise ValueError(f"kernel_size={kernel_size}; expected at least 2; with 1, positions are independent.")
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.use_bias = checks.boolean("use_bias", use_bias)

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        self._dim = self._read_width(inputs_shape)
        shape = (self.kernel_size, self._dim)
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(shape=(self._dim,), initializer=self.bias_initializer, name="bias")

    def get_initial_state(self, batch_size):
        """Return zeros, `[B, K - 1, D]`."""
        return ops.zeros((batch_size, self.kernel_size - 1, self._dim), self.compute_dtype)

    def call(self, inputs, state=None, mask=None, inputs_mask=None, reset_mask=None, return_state: bool = False):
        """Apply the layer; the class docstring describes the call arguments."""
        x, previous, mask = self.prepare_inputs(inputs, state, inputs_mask if mask is None else mask)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        segment, count = None if reset_mask is None else segment_numbers(reset_mask), None
        if mask is not None:
            count = ops.cumsum(ops.cast(mask, "int32"), axis=1)
            order = true_first(mask)
            x = gather_positions(x, order)
            segment = segment if segment is None else ops.take_along_axis(segment, order, axis=1)
        x = ops.concatenate([previous, x], axis=1)
        num_previous = self.kernel_size - 1

        def convolve(x, kernel, bias):
            """Return y and the last inputs."""

            def inputs_before(k):  # those of the same document
                before = x[:, num_previous - k : -k or None]
                if not k or segment is None:
                    return before
                segment_before = ops.pad(segment, ((0, 0), (k, 0)))[:, :-k]  # documents before this call are segment 0
                return ops.where(ops.expand_dims(ops.equal(segment_before, segment), -1), before, 0)

            y = sum(inputs_before(k) * kernel[k] for k in range(self.kernel_size)) + bias
            if mask is None:
                state = x[:, -num_previous:]
            else:
                y = ops.where(ops.expand_dims(mask, -1), gather_positions(y, ops.maximum(count - 1, 0)), 0)
                state = gather_positions(x, count[:, -1:] + ops.arange(num_previous, dtype="int32"))
            if segment is not None:
                last = segment_numbers(reset_mask)[:, -1:]
                segments = ops.expand_dims(ops.pad(segment, ((0, 0), (num_previous, 0))), -1)
                if mask is None:
                    segments = segments[:, -num_previous:]
                else:
                    segments = gather_positions(segments, count[:, -1:] + ops.arange(num_previous, dtype="int32"))
                state = ops.where(ops.equal(segments, ops.expand_dims(last, -1)), state, 0)
            return y, state

        kernel = ops.cast(self.kernel, self.compute_dtype)
        bias = ops.cast(self.bias, self.compute_dtype) if self.use_bias else 0
        if reset_mask is None:
            y, state = convolve(x, kernel, bias)
        else:  # and count what is not finite among the K inputs
            x, flags = split_finite(x)
            results = convolve(x, kernel, bias), convolve(flags, ops.ones((self.kernel_size, 1), flags.dtype), 0)
            y, state = map(join_finite, *results)
        return (y, state) if return_state else y


def gather_positions(x, indices):
    """Return `x [B, T, D]` at `indices [B, T']` of its second axis."""
    return ops.take_along_axis(x, ops.expand_dims(indices, -1), axis=1)

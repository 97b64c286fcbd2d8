"""A short convolution over the positions, each feature by itself, that sees no later position.

    y_t = sum_{k=0}^{K-1} w_k x_{t-k} + bias              w_k, bias: [D];  x before the start: 0

K is the kernel size, 4 as a rule. In front of a state-space or a gated layer it lets a position know its neighbours at
once (H3: Fu et al., 2023; Mamba: Gu & Dao, 2023).
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.explicit_state import ExplicitState


@keras.saving.register_keras_serializable(package="keras_seq")
class CausalDepthwiseConv1D(ExplicitState):
    """A depthwise causal convolution that hands on its last inputs as a state.

    ```python
    layer = CausalConvolution(4)
    y = layer(x)  # x [B, T, D] -> y [B, T, D]
    y, state = layer(x, return_state=True)
    y, state = layer(more, state=state, return_state=True)  # goes on where it ended
    ```

    Args:
        kernel_size: K, at least 2: how many positions one output sees, its own included.
        kernel_initializer: of the kernel `[K, D]`; row k weighs what stood k positions before. One that looks at K
            alone, as `"lecun_uniform"` does: every output is a sum of K numbers, whatever D.
        bias_initializer: of the bias `[D]`.

    The state is the last K - 1 inputs, `[B, K - 1, D]`.

    Masking: `mask [B, T]`; a masked position is as if it were not there: the window reaches past it, the state
    does not know of it, and its output is zero.

    Raises:
        ValueError: for an argument out of its range, or an input that is not `[B, T, D]`.
    """

    def __init__(self, kernel_size=4, kernel_initializer="lecun_uniform", bias_initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.kernel_size = checks.positive_integer("kernel_size", kernel_size)
        if self.kernel_size < 2:
            raise ValueError(f"kernel_size={kernel_size}; expected at least 2: with 1, no position sees another.")
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, x_shape):
        self.width = checks.sequence_shape("x", x_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: self.width})
        shape = (self.kernel_size, self.width)
        self.kernel = self.add_weight(shape=shape, initializer=self.kernel_initializer, name="kernel")
        self.bias = self.add_weight(shape=(self.width,), initializer=self.bias_initializer, name="bias")
        self.kernel.muon_blocks = 0  # K vectors, no matrix: not for an optimizer of matrices

    def get_initial_state(self, batch_size):
        """Zeros, `[B, K - 1, D]`."""
        return ops.zeros((batch_size, self.kernel_size - 1, self.width), self.compute_dtype)

    def call(self, x, state=None, mask=None, x_mask=None, return_state=False):
        x, before, mask = self.prepare_inputs(x, state, x_mask if mask is None else mask)
        if mask is not None:  # real positions first, in their order; padding behind them
            count = ops.cumsum(ops.cast(mask, "int32"), axis=1)
            place = ops.arange(ops.shape(x)[1], dtype="int32")
            order = ops.argsort(ops.where(mask, place, place + ops.shape(x)[1]), axis=1)
            x = _rows(x, order)
        x = ops.concatenate([before, x], axis=1)
        last = self.kernel_size - 1
        kernel, bias = (ops.cast(v, self.compute_dtype) for v in (self.kernel, self.bias))
        y = sum(x[:, last - k : -k or None] * kernel[k] for k in range(self.kernel_size)) + bias
        if mask is None:
            state = x[:, -last:]
        else:
            y = ops.where(ops.expand_dims(mask, -1), _rows(y, ops.maximum(count - 1, 0)), 0)
            state = _rows(x, count[:, -1:] + ops.arange(last, dtype="int32"))
        return (y, state) if return_state else y

    def compute_output_shape(self, x_shape):
        """As it came."""
        return tuple(x_shape)

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


def _rows(x, indices):
    """`x [B, T, D]` at `indices [B, T']` of its second axis."""
    return ops.take_along_axis(x, ops.expand_dims(indices, -1), axis=1)

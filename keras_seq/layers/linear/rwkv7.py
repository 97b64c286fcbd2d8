"""RWKV-7's channel mixing, and a stack of its blocks (Peng et al., 2025, arXiv:2503.14456).

    channel mixing    relu((x + (previous x - x) mu) W_in)^2 W_out

    stack             x = norm(x);  for each block:  x + time_mix(norm(x)), then x + channel_mix(norm(x))

Every block but the first gets the values of the first one, so the blocks are one layer.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.layer import freeze_inner_layers, same_shape
from keras_seq.layers.base.state import ExplicitState, join_finite, split_finite
from keras_seq.layers.dense import Dense, cloned
from keras_seq.layers.linear.mixer import shift_ramp
from keras_seq.layers.linear.rwkv7_time_mix import RWKV7TimeMix, previous_positions
from keras_seq.layers.normalization import make_normalization
from keras_seq.ops import tensor_checks


@keras.saving.register_keras_serializable(package="keras_seq")
class RWKV7ChannelMix(ExplicitState):
    """RWKV-7's feed-forward layer, which sees the previous position too.

    ```python
    layer = RWKV7ChannelMix(64)
    y, last = layer(x, return_state=True)  # x [B, T, D] -> y [B, T, D], last [B, D]
    ```

    Args:
        feed_forward_dim: Width of the hidden layer; as published, 4 D.
        kernel_initializer: Initializer of the first matrix.
        output_initializer: Initializer of the last matrix, which writes to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    The state is the last inputs, `[B, D]`.

    Masking: `mask [B, T]`; a masked position is skipped. The mask is passed on. `reset_mask [B, T]` is true where
        another document begins, before which inputs count as zeros.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    loops_over_positions = False

    compute_output_shape = same_shape

    def __init__(
        self,
        feed_forward_dim: int,
        kernel_initializer="glorot_uniform",
        output_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.feed_forward_dim = checks.positive_integer("feed_forward_dim", feed_forward_dim)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.output_initializer = keras.initializers.get(output_initializer)

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        self._width = self._read_width(inputs_shape)
        self.shift = self.add_weight(shape=(self._width,), initializer=shift_ramp(1.0), name="shift")
        self.hidden_dense, self.output_dense = (
            Dense(units, use_bias=False, kernel_initializer=initializer, dtype=self.dtype_policy, name=name)
            for units, initializer, name in (
                (self.feed_forward_dim, self.kernel_initializer, "hidden"),
                (self._width, self.output_initializer, "output"),
            )
        )
        self.hidden_dense.build(inputs_shape)
        self.output_dense.build((*inputs_shape[:-1], self.feed_forward_dim))
        freeze_inner_layers(self)

    def get_initial_state(self, batch_size):
        """Return zeros, the last inputs `[B, D]`."""
        return ops.zeros((batch_size, self._width), self.compute_dtype)

    def call(self, inputs, state=None, mask=None, inputs_mask=None, reset_mask=None, return_state: bool = False):
        """Apply the layer; the class docstring describes the call arguments."""
        x, last, mask = self.prepare_inputs(inputs, state, inputs_mask if mask is None else mask)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        if reset_mask is None:
            previous, last = previous_positions(x, last, mask)
            y = self._mix(x, previous)
        else:
            (x, flags), (last, last_flags) = split_finite(x), split_finite(last)
            previous, last = previous_positions(x, last, mask, reset_mask)
            previous_flags, last_flags = previous_positions(flags, last_flags, mask, reset_mask)
            y = join_finite(self._mix(x, previous), flags + previous_flags)
            last = join_finite(last, last_flags)
        return (y, last) if return_state else y

    def _mix(self, x, previous):
        hidden = self.hidden_dense(x + (previous - x) * ops.cast(self.shift, x.dtype))
        return self.output_dense(ops.square(ops.relu(hidden)))


@keras.saving.register_keras_serializable(package="keras_seq")
class RWKV7Blocks(ExplicitState):
    """A stack of RWKV-7 blocks: time mixing and channel mixing with residual connections and layer normalization.

    ```python
    blocks = RWKV7Blocks(num_layers=2, num_heads=2, feed_forward_dim=64)
    y, state = blocks(x, return_state=True)  # x [B, T, D] -> y [B, T, D]
    y, state = blocks.step(x[:, 0], state)  # one position: y [B, D]
    ```

    Args:
        num_layers: Number of blocks.
        num_heads: H.
        feed_forward_dim: Width of the hidden layer of channel mixing; as published, 4 D.
        head_dim: K, width of a head; D / H, rounded up, unless given.
        rank: As for `RWKV7TimeMix`.
        dropout: Fraction of each sublayer's output to drop in training.
        residual_initializer: Initializer of the matrices that write to the residual stream.
        **kwargs: Those of `keras.layers.Layer`.

    The state is a tuple with `(state of time mixing, state of channel mixing)` for each block.

    Masking: `mask [B, T]`; a masked position copies the state. The mask is passed on. `reset_mask [B, T]` is true
        where another document begins, from the initial state.

    Raises:
        ValueError: If an argument is out of its range, or the inputs are not `[B, T, D]`.
    """

    compute_output_shape = same_shape

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        feed_forward_dim: int,
        head_dim: int | None = None,
        rank: int | None = None,
        dropout: float = 0.0,
        residual_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_layers = checks.positive_integer("num_layers", num_layers)
        self.num_heads, self.head_dim, self.rank = num_heads, head_dim, rank
        self.feed_forward_dim = feed_forward_dim
        self.dropout = checks.fraction("dropout", dropout)
        self.residual_initializer = keras.initializers.get(residual_initializer)
        dtype = self.dtype_policy
        self.normalizations = [
            make_normalization("layer", name=f"normalization_{n}", dtype=dtype) for n in range(2 * num_layers + 1)
        ]
        self.time_mixes = [
            RWKV7TimeMix(
                num_heads,
                head_dim,
                value_residual=n > 0,
                rank=rank,
                output_initializer=cloned(self.residual_initializer, f"time_mix_{n}"),
                dtype=dtype,
                name=f"time_mix_{n}",
            )
            for n in range(num_layers)
        ]
        self.channel_mixes = [
            RWKV7ChannelMix(
                feed_forward_dim,
                output_initializer=cloned(self.residual_initializer, f"channel_mix_{n}"),
                dtype=dtype,
                name=f"channel_mix_{n}",
            )
            for n in range(num_layers)
        ]
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")

    def build(self, inputs_shape):
        """Create the weights for inputs of this shape."""
        self._read_width(inputs_shape)
        for layer in (*self.normalizations, *self.time_mixes, *self.channel_mixes):
            layer.build(inputs_shape)
        freeze_inner_layers(self)

    def get_initial_state(self, batch_size):
        """Return the initial states of the blocks."""
        pairs = zip(self.time_mixes, self.channel_mixes, strict=True)
        return tuple((a.get_initial_state(batch_size), b.get_initial_state(batch_size)) for a, b in pairs)

    def call(
        self,
        inputs,
        state=None,
        mask=None,
        inputs_mask=None,
        reset_mask=None,
        training: bool | None = None,
        return_state: bool = False,
    ):
        """Apply the layer; the class docstring describes the call arguments."""
        x, state, mask = self.prepare_inputs(inputs, state, inputs_mask if mask is None else mask)
        x, reset_mask = tensor_checks.masked("reset_mask", x, reset_mask)
        first, *norms = self.normalizations
        x, states, value = first(x), [], None
        for n, (time_mix, channel_mix) in enumerate(zip(self.time_mixes, self.channel_mixes, strict=True)):
            time_state, channel_state = state[n]
            y, own_value, time_state = time_mix(
                norms[2 * n](x),
                state=time_state,
                mask=mask,
                reset_mask=reset_mask,
                first_value=value,
                return_state=True,
                return_value=True,
            )
            value = own_value if value is None else value
            x = x + self.dropout_layer(y, training=training)
            y, channel_state = channel_mix(
                norms[2 * n + 1](x), state=channel_state, mask=mask, reset_mask=reset_mask, return_state=True
            )
            x = x + self.dropout_layer(y, training=training)
            states.append((time_state, channel_state))
        return (x, tuple(states)) if return_state else x

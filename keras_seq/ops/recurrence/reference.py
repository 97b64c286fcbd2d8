"""A cell, applied to one time step after the other: state_t = cell(z_t, state_{t-1})."""

import functools
from collections.abc import Callable

import keras
from keras import ops, tree

from keras_seq.ops.dispatch import optimized

MAX_UNROLLED = 64  # positions; above, a loop is as fast on TensorFlow, and unrolled time steps take longer to build


@optimized
def recurrence(cell: Callable, z, state, mask=None, reset_mask=None):
    """Apply a cell to all time steps, one after the other.

    Args:
        cell: Function `(z_t [B, W], state) -> state`; a state is a tensor `[B, units]` or a tuple of such tensors.
        z: `[B, T, W]`, inputs of the cell.
        state: State before the first time step.
        mask: `[B, T]` boolean, or None. Where it is false, the state is copied.
        reset_mask: `[B, T]` boolean, or None. Where it is true, the state before the time step is set to zeros.

    Returns:
        `(y [B, T, units], state)`: the state, or its first tensor, at every time step, and the last state.
    """
    width = z.shape[-1]

    def time_step(state, inputs):
        if reset_mask is not None:
            state = tree.map_structure(lambda old: ops.where(inputs[:, -1:] > 0, ops.zeros_like(old), old), state)
        new = cell(inputs[:, :width], state)
        if mask is not None:
            is_valid = inputs[:, width : width + 1] > 0
            new = tree.map_structure(lambda new, old: ops.where(is_valid, new, old), new, state)
        return new

    # masks are further columns of z, so that one tensor is scanned
    columns = [ops.expand_dims(ops.cast(one, z.dtype), -1) for one in (mask, reset_mask) if one is not None]
    z = ops.concatenate([z, *columns], axis=-1) if columns else z
    y, state = scan(time_step, state, ops.swapaxes(z, 0, 1))
    return ops.swapaxes(y, 0, 1), state


def scan(step, state, xs):
    """Compute state_t = step(state_{t-1}, x_t) for `xs [T, ...]`: the states, or their first tensors, and the last one.

    `ops.scan` sets no bound on its loop on TensorFlow, where XLA then cannot differentiate it.
    """
    length = xs.shape[0]
    # torch loops in Python, too, and the gradient of each xs[t] is as large as xs
    unrolled = {"tensorflow": MAX_UNROLLED, "torch": length}.get(keras.backend.backend(), 1)
    if length and length <= unrolled:
        states = []
        for x in ops.unstack(xs, length):
            state = step(state, x)
            states.append(tree.flatten(state)[0])
        return ops.stack(states), state
    if keras.backend.backend() != "tensorflow" or length == 0:

        def step_twice(state, x):
            state = step(state, x)
            return state, state

        state, states = ops.scan(step_twice, state, xs)
        return tree.flatten(states)[0], state
    length = ops.shape(xs)[0]
    first = tree.flatten(state)[0]
    states = ops.zeros((length, *ops.shape(first)), first.dtype)

    def position(t, state, states):
        state = step(state, xs[t])
        row = ops.expand_dims(tree.flatten(state)[0], 0)
        return t + 1, state, ops.scatter_update(states, ops.reshape(t, (1, 1)), row)

    _, state, states = ops.while_loop(lambda t, *_: t < length, position, (0, state, states), maximum_iterations=length)
    return states, state


@optimized
def fused_rnn(kind: str, x, state, kernel, recurrent_kernel, bias, training: bool | None = None):
    """Compute a whole `"lstm"`, or `"gru"` with the reset after the matmul; ask `fused_rnn.twin` first.

    For `x [B, T, D]` and a state `(h, c)` or h, with the layer's three weights, it returns `(y [B, T, units], state)`.
    The reference is the projection of the inputs and `lstm` or `gru`, so it is not here.
    """
    raise NotImplementedError(f"no twin of this {kind}; expected fused_rnn.twin(...) to be asked first.")


@optimized
def stored_for_fused_rnn(matrix):
    """Return a matrix in the order of memory in which `fused_rnn` of an LSTM reads it."""
    return matrix


# LSTM and GRU on a GPU in training: Keras's layer with the same weights, which runs cuDNN's recurrence.
#
# In float32 only, because cuDNN keeps the cell state in the dtype of the matrices. In training only, because generation
# and scoring are compiled by XLA, which cannot call cuDNN's recurrence on TensorFlow. (On JAX, Keras's LSTM calls
# `jax.experimental.rnn`; its GRU is a loop.)

LAYERS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}


def trains_in_float32(kind, x, state, kernel, recurrent_kernel, bias, training=None) -> bool:
    """Return whether this is a call of training in float32."""
    return bool(training) and keras.backend.standardize_dtype(x.dtype) == "float32"


@fused_rnn.on("tensorflow", supports=trains_in_float32, device="gpu")
@fused_rnn.on("jax", supports=trains_in_float32, device="gpu")
def keras_layer(kind, x, state, kernel, recurrent_kernel, bias, training=None):
    """Run a Keras layer on the weights, which it does not own."""
    layer = _layer(kind, tree.flatten(state)[0].shape[-1])
    for name, weight in (("kernel", kernel), ("recurrent_kernel", recurrent_kernel), ("bias", bias)):
        object.__setattr__(layer.cell, name, weight)  # Keras would track it
    y, *new_state = layer(x, initial_state=tree.flatten(state))
    return y, tree.pack_sequence_as(state, new_state)


@functools.cache
def _layer(kind, units):
    """Make a layer once: it has a variable, a seed, of which a `tf.function` takes no second one."""
    layer = LAYERS[kind](units, return_sequences=True, return_state=True, dtype="float32", seed=0)
    layer.cell.built = layer.built = True
    return layer

"""A cell, applied to one time step after the other: state_t = cell(z_t, state_{t-1})."""

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


if keras.backend.backend() == "tensorflow":
    import keras_seq.ops.recurrence.tensorflow  # noqa: F401  (binds the twin)

"""Apply a function to one position after the other: the loop of the reference implementations."""

import keras
from keras import ops, tree

MAX_UNROLLED = 64  # positions, as in `kernels/tensorflow/recurrence.py`


def scan(step, state, xs):
    """Compute state_t = step(state_{t-1}, x_t) for all t.

    `ops.scan` sets no bound on its loop on TensorFlow, where XLA then cannot differentiate it.

    Args:
        step: Function `(state, x) -> state`; a state is a tensor or a nested structure of tensors.
        state: The state before the first position.
        xs: `[T, ...]`.

    Returns:
        `(states, state)`: the first tensor of the state at every position, `[T, ...]`, and the last state.
    """
    length = xs.shape[0]
    if keras.backend.backend() != "tensorflow" or length == 0:

        def step_twice(state, x):
            state = step(state, x)
            return state, state

        state, states = ops.scan(step_twice, state, xs)
        return tree.flatten(states)[0], state
    if length is not None and length <= MAX_UNROLLED:
        states = []
        for x in ops.unstack(xs, length):
            state = step(state, x)
            states.append(tree.flatten(state)[0])
        return ops.stack(states), state
    length = ops.shape(xs)[0]
    first = tree.flatten(state)[0]
    states = ops.zeros((length, *ops.shape(first)), first.dtype)

    def position(t, state, states):
        state = step(state, xs[t])
        return (
            t + 1,
            state,
            ops.scatter_update(states, ops.reshape(t, (1, 1)), ops.expand_dims(tree.flatten(state)[0], 0)),
        )

    _, state, states = ops.while_loop(lambda t, *_: t < length, position, (0, state, states), maximum_iterations=length)
    return states, state

"""Run one of two functions that assign variables, as a condition on the device demands."""

from collections.abc import Callable, Sequence

import keras
from keras import ops


def assign_if(condition, true_fn: Callable, false_fn: Callable, variables: Sequence[keras.Variable]) -> None:
    """Call one of two functions, for what it assigns.

    JAX's conditions have values only: there each function runs on a copy of the values, and what it leaves is assigned.
    torch has Python's own, for which Keras's operation takes half a millisecond.

    Args:
        condition: Boolean scalar.
        true_fn: Function without arguments, called if the condition is true.
        false_fn: Function without arguments, called if it is false.
        variables: All variables that either of them assigns.
    """
    if keras.backend.backend() == "torch":
        (true_fn if condition else false_fn)()
        return
    if keras.backend.backend() != "jax":
        ops.cond(condition, true_fn, false_fn)
        return
    before = [(variable, variable.value) for variable in variables]

    def values_after(function):
        with keras.StatelessScope(before) as scope:
            function()
        return [scope.get_current_value(variable) for variable in variables]

    after = ops.cond(condition, lambda: values_after(true_fn), lambda: values_after(false_fn))
    for variable, value in zip(variables, after, strict=True):
        variable.assign(value)

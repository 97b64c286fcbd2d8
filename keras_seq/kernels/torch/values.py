"""Read weights as torch tensors."""

import keras


def value_like(weight, x):
    """Return a weight, a Keras variable or a tensor, in the dtype of x; None stays None."""
    if weight is None:
        return None
    return (weight.value if isinstance(weight, keras.Variable) else weight).to(x.dtype)


def values(variables):
    """Return the tensors of variables, without Keras's look for a scope of other values at each, if there is none."""
    first = next(iter(variables), None)
    if first is None or first.value is not first._value:
        return [variable.value for variable in variables]
    return [variable._value for variable in variables]

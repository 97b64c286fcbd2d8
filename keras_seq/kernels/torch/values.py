"""Read weights as torch tensors."""

import keras


def value_like(weight, x):
    """Return a weight, a Keras variable or a tensor, in the dtype of x; None stays None."""
    if weight is None:
        return None
    return (weight.value if isinstance(weight, keras.Variable) else weight).to(x.dtype)

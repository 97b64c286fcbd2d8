"""Checks of arguments. Each error names the argument, the value it got and what was expected."""

import math
import numbers

import keras
import numpy as np
from keras import ops

LARGEST = 2**31 - 1  # of a size: TensorFlow has whole numbers of 32 bits for shapes in many places


def positive_integer(name, value):
    """`value` as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 1 <= value <= LARGEST:
        limit = f" and at most {LARGEST}" if isinstance(value, numbers.Integral) and value > LARGEST else ""
        raise ValueError(f"{name}={value!r}; expected a whole number of at least 1{limit}.")
    return int(value)


def whole(name, value):
    """`value` as an int of at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 <= value < 2**63:
        raise ValueError(f"{name}={value!r}; expected a whole number of at least 0 and below 2**63.")
    return int(value)


def positive_number(name, value):
    """`value` as a finite float greater than 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < value < math.inf:
        raise ValueError(f"{name}={value!r}; expected a number greater than 0.")
    return float(value)


def fraction(name, value):
    """`value` as a float in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(f"{name}={value!r}; expected a number of at least 0 and less than 1.")
    return float(value)


def number(name, value, least, most=math.inf):
    """`value` as a finite float from `least` to `most`."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (real and least <= value <= most and math.isfinite(value)):
        limit = f"at least {least}" if most == math.inf else f"a number from {least} to {most}"
        raise ValueError(f"{name}={value!r}; expected {limit}.")
    return float(value)


def boolean(name, value):
    """`value`, if it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r}; expected True or False.")
    return value


def one_of(name, value, options):
    """`value`, if it is among `options`."""
    if value not in options:
        raise ValueError(f"{name}={value!r}; expected one of {', '.join(map(repr, options))}.")
    return value


def sequence_shape(name, shape):
    """The width D of a shape `[B, T, D]`."""
    if len(shape) != 3 or shape[-1] is None:
        remedy = " A recurrent layer gives that with return_sequences=True." if len(shape) == 2 else ""
        raise ValueError(f"{name} has shape {tuple(shape)}; expected [B, T, D] with D known.{remedy}")
    return shape[-1]


def boolean_mask(name, mask, ranks):
    """`mask` as booleans, None where there is none; its rank is one of `ranks`."""
    if mask is None:
        return None
    if len(mask.shape) not in ranks:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected rank {' or '.join(map(str, ranks))}.")
    return ops.cast(mask, "bool")


def below(name, values, limit):
    """Refuses whole numbers outside of 0 .. `limit` - 1, where they are known by now; see `known`."""
    values = known(values)
    if values is None or not values.size:
        return
    least, most = values.min(), values.max()
    if least < 0 or most >= limit:
        raise ValueError(f"{name} holds {least if least < 0 else most}; expected numbers from 0 to {limit - 1}.")


def known(values):
    """`values` as a NumPy array, or None while they are symbolic. Adds nothing to what is being compiled."""
    if isinstance(values, keras.KerasTensor):
        return None
    try:
        return np.asarray(ops.convert_to_numpy(values))
    except (TypeError, RuntimeError, NotImplementedError):  # every backend refuses in its own words
        return None

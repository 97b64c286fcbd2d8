"""Check arguments: each function returns the checked value or raises a ValueError.

Messages have one form: the argument's name and value, what was expected, and a remedy where there is one.
"""

import difflib
import math
import numbers
import sys
from collections.abc import Collection, Iterable

MAX_INT32 = 2**31 - 1  # of a size: TensorFlow stores shapes as int32 in many places
MAX_INT64 = 2**63 - 1
MAX_FLOAT = sys.float_info.max  # an integer may be greater, which float() refuses
MAX_BATCH_IDS = 2**31  # TensorFlow counts elements in 32 bits in many places


def integer(name: str, value: object, min_value: int, max_value: int = MAX_INT64, reason: str = "") -> int:
    """Return `value` as an int from `min_value` to `max_value`."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or not min_value <= value <= max_value:
        limit = f" and at most {max_value}" if is_integer and value > max_value else ""
        raise ValueError(
            f"{name}={value!r}; expected an integer of at least {min_value}{limit}{reason and f', {reason}'}."
        )
    return int(value)


def positive_integer(name: str, value: object) -> int:
    """Return `value` as an int from 1 to 2**31 - 1, the range of a size."""
    return integer(name, value, 1, MAX_INT32)


def non_negative_integer(name: str, value: object) -> int:
    """Return `value` as an int from 0 to 2**63 - 1, the range of a count or a seed."""
    return integer(name, value, 0)


def positive_number(name: str, value: object) -> float:
    """Return `value` as a finite float greater than 0."""
    value = _python_number(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < value <= MAX_FLOAT:
        raise ValueError(f"{name}={value!r}; expected a number greater than 0.")
    return float(value)


def _python_number(value):
    """Return a NumPy number as Python's, as it compares in its own precision and warns of limits beyond it."""
    return value.item() if isinstance(value, numbers.Real) and hasattr(value, "item") else value


def fraction(name: str, value: object) -> float:
    """Return `value` as a float in [0, 1), such as a dropout rate."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(f"{name}={value!r}; expected a number of at least 0 and less than 1.")
    return float(value)


def number(name: str, value: object, min_value: float, max_value: float = math.inf) -> float:
    """Return `value` as a finite float from `min_value` to `max_value`."""
    value = _python_number(value)
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (is_real and min_value <= value <= max_value and abs(value) <= MAX_FLOAT):
        limit = f"of at least {min_value}" if max_value == math.inf else f"from {min_value} to {max_value}"
        raise ValueError(f"{name}={value!r}; expected a number {limit}.")
    return float(value)


def boolean(name: str, value: object) -> bool:
    """Return `value` if it is True or False."""
    value = value.item() if hasattr(value, "item") and value.shape == () else value  # of NumPy
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r}; expected True or False.")
    return value


def one_of(name: str, value: object, options: Collection) -> object:
    """Return `value` if it is among `options`."""
    if value not in tuple(options):  # whose values are compared and not hashed, as a list cannot be
        raise ValueError(f"{name}={value!r}; expected one of {', '.join(map(repr, options))}.")
    return value


def pattern(name: str, value: object, letters: str) -> str:
    """Return `value` if it is one or more of the letters."""
    if not isinstance(value, str) or not value or set(value) - set(letters):
        raise ValueError(f"{name}={value!r}; expected one or more of the letters {', '.join(letters)}.")
    return value


def tensorflow_backend(name: str) -> None:
    """Check that Keras's backend is TensorFlow."""
    import keras  # here, since most checks need no Keras

    if (backend := keras.backend.backend()) != "tensorflow":
        raise ValueError(f"{name} needs the TensorFlow backend, not {backend}: set KERAS_BACKEND=tensorflow.")


def short_repr(value: object) -> str:
    """Return the type and the `repr` of a value for a message, cut to 80 characters."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return the nearest of some names to a mistyped one, as the end of a message, or nothing."""
    nearest = difflib.get_close_matches(name, names, n=1)
    return f"; perhaps you meant {nearest[0]}" if nearest else ""

"""Checks of arguments. Each error names the argument, the value it got and what was expected."""

import math
import numbers

import keras
import numpy as np
from keras import ops

MAX_INT32 = 2**31 - 1  # of a size: TensorFlow has whole numbers of 32 bits for shapes in many places
MAX_BATCH_IDS = 2**31  # TensorFlow counts elements in 32 bits in many places


def positive_integer(name, value):
    """`value` as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 1 <= value <= MAX_INT32:
        limit = f" and at most {MAX_INT32}" if isinstance(value, numbers.Integral) and value > MAX_INT32 else ""
        raise ValueError(f"{name}={value!r}; expected a whole number of at least 1{limit}.")
    return int(value)


def non_negative_integer(name, value):
    """`value` as an int of at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 <= value < 2**63:
        raise ValueError(f"{name}={value!r}; expected a whole number of at least 0 and below 2**63.")
    return int(value)


def integer(name, value, min_value):
    """`value` as an int of at least `min_value` that an int64 holds."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not min_value <= value < 2**63:
        raise ValueError(f"{name}={value!r}; expected an integer of at least {min_value} and below 2**63.")
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


def dtype_of(values):
    """The name of a dtype, whichever library the values belong to."""
    return str(getattr(values.dtype, "name", values.dtype)).removeprefix("torch.")


def real(name, x):
    """Refuses complex numbers, whose imaginary part a cast would drop, and rows of different lengths."""
    if hasattr(x, "row_splits"):
        raise ValueError(f"{name} is ragged; expected [B, T, D]: pad it, as to_tensor() does, and give a mask [B, T].")
    if "complex" in dtype_of(x):
        raise ValueError(f"{name} has the dtype {dtype_of(x)}; expected real numbers.")


def integers(name, values, remedy=""):
    """`values` as int32, refused by their dtype where they are no integers; what int32 does not hold becomes -1."""
    dtype = dtype_of(values)
    if "int" not in dtype:
        raise ValueError(f"{name} has the dtype {dtype}; expected integers{remedy}.")
    if dtype not in ("int64", "uint32", "uint64"):
        return ops.cast(values, "int32")
    fits = ops.logical_and(values >= 0, values <= MAX_INT32)
    return ops.where(fits, ops.cast(values, "int32"), -1)


def boolean_mask(name, mask, ranks, x=None):
    """`mask` as booleans, None where there is none.

    Args:
        name: of the mask, for the message.
        mask: booleans, or integers 0 and 1.
        ranks: the ranks it may have.
        x: what it belongs to: its axes are then the first ones of x, and an axis of 1 stands for nothing else. See
            `with_axes_of` for sizes that are not known before a graph runs.
    """
    if mask is None:
        return None
    mask = mask if hasattr(mask, "shape") else ops.convert_to_tensor(mask)
    shape, dtype = tuple(mask.shape), dtype_of(mask)
    if len(shape) not in ranks:
        raise ValueError(f"{name} has shape {shape}; expected rank {' or '.join(map(str, ranks))}.")
    if dtype != "bool" and "int" not in dtype:
        raise ValueError(
            f"{name} has the dtype {dtype}; expected booleans: `{name} == 0` makes them of an additive mask, which is "
            f"0 where attending is allowed, and `{name} > 0.5` of ones and zeros."
        )
    values = None if dtype == "bool" else static_value(mask)
    if values is not None and not np.isin(values, (0, 1)).all():
        raise ValueError(f"{name} holds {values[~np.isin(values, (0, 1))].flat[0]}; expected booleans, or 0 and 1.")
    mask = ops.cast(mask, "bool")
    if x is None:
        return mask
    same_axes(name, mask, x, len(shape))
    return mask


def masked(name, x, mask, rank=2):
    """`(x, mask)`: the mask as `boolean_mask` has it, and x, which is NaN where a graph finds that they do not fit."""
    checked = boolean_mask(name, mask, ranks=(rank,), x=x)
    return with_axes_of(where_boolean(x, mask), checked, rank), checked


def where_boolean(x, mask):
    """x; NaN where a graph that runs finds another integer than 0 and 1 in a mask. Nothing is added for booleans."""
    if mask is None or not hasattr(mask, "shape") or dtype_of(mask) == "bool" or static_value(mask) is not None:
        return x
    return ops.where(ops.all(ops.logical_or(ops.equal(mask, 0), ops.equal(mask, 1))), x, float("nan"))


def same_axes(name, values, x, rank):
    """Refuses values whose axes are not the first ones of x, as far as that is known."""
    given, wanted = tuple(values.shape), tuple(x.shape)[:rank]
    if len(given) != len(wanted) or any(
        own != size and None not in (own, size) for own, size in zip(given, wanted, strict=True)
    ):
        axes = "[B, T]" if len(wanted) == 2 else "[B]"
        raise ValueError(f"{name} has shape {given}; expected {axes}, here {wanted}.")


def _agree(shape, other):
    known = [sizes for sizes in zip(shape, other, strict=False) if None not in sizes]
    return len(shape) == len(other) and all(own == size for own, size in known)


def with_axes_of(x, values, rank):
    """x; NaN where a graph that runs finds other first axes in `values`. Nothing is added where all are known before.

    (A reshape would not tell: TensorFlow leaves out one between shapes that it does not know.)
    """
    if values is None or None not in (*values.shape[:rank], *x.shape[:rank]):
        return x
    given, wanted = ops.shape(values), ops.shape(x)
    same = [ops.equal(given[axis], wanted[axis]) for axis in range(rank)]
    return ops.where(ops.all(ops.stack(same)), x, float("nan"))


def attention_mask(name, mask, batch_size, heads, length, size):
    """As `boolean_mask`: `[T, S]`, `[B, T, S]` or `[B, H, T, S]`, where any axis may be 1. A size may be None."""
    mask = boolean_mask(name, mask, ranks=(2, 3, 4))
    if mask is None:
        return None
    given, axes = tuple(mask.shape), ("B", "H", "T", "S")
    sizes = dict(zip(axes, (batch_size, heads, length, size), strict=True))
    axes = {2: ("T", "S"), 3: ("B", "T", "S"), 4: axes}[len(given)]
    wanted = tuple(sizes[axis] for axis in axes)
    if any(own not in (1, None) and need is not None and own != need for own, need in zip(given, wanted, strict=True)):
        raise ValueError(
            f"{name} has shape {given}; expected [{', '.join(axes)}], here {wanted}, or 1 for any of them."
        )
    return mask


def ids_below(name, values, limit):
    """Refuses whole numbers outside of 0 .. `limit` - 1, where they are known by now; see `known`."""
    values = static_value(values)
    if values is None or not values.size:
        return
    least, most = values.min(), values.max()
    if least < 0 or most >= limit:
        raise ValueError(f"{name} holds {least if least < 0 else most}; expected numbers from 0 to {limit - 1}.")


def static_value(values):
    """`values` as a NumPy array, or None while they are symbolic. Adds nothing to what is being compiled."""
    if isinstance(values, keras.KerasTensor):
        return None
    try:
        return np.asarray(ops.convert_to_numpy(values))
    except (TypeError, RuntimeError, NotImplementedError):  # every backend refuses in its own words
        return None

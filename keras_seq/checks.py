"""Check arguments: each function returns the checked value or raises a ValueError.

Messages have one form: the argument's name and value, what was expected, and a remedy where there is one.
"""

import functools
import math
import numbers
import re
import sys
from collections.abc import Collection, Sequence

import keras
import numpy as np
from keras import ops

if keras.backend.backend() == "torch":
    import torch

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
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < value <= MAX_FLOAT:
        raise ValueError(f"{name}={value!r}; expected a number greater than 0.")
    return float(value)


def fraction(name: str, value: object) -> float:
    """Return `value` as a float in [0, 1), such as a dropout rate."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise ValueError(f"{name}={value!r}; expected a number of at least 0 and less than 1.")
    return float(value)


def number(name: str, value: object, min_value: float, max_value: float = math.inf) -> float:
    """Return `value` as a finite float from `min_value` to `max_value`."""
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (is_real and min_value <= value <= max_value and abs(value) <= MAX_FLOAT):
        limit = f"of at least {min_value}" if max_value == math.inf else f"from {min_value} to {max_value}"
        raise ValueError(f"{name}={value!r}; expected a number {limit}.")
    return float(value)


def boolean(name: str, value: object) -> bool:
    """Return `value` if it is True or False."""
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
    if (backend := keras.backend.backend()) != "tensorflow":
        raise ValueError(f"{name} needs the TensorFlow backend, not {backend}: set KERAS_BACKEND=tensorflow.")


def short_repr(value: object) -> str:
    """Return the type and the `repr` of a value for a message, cut to 80 characters."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


def sequence_shape(name: str, shape: Sequence) -> int:
    """Return the width D of a shape `[B, T, D]`."""
    if len(shape) != 3 or shape[-1] is None:
        remedy = ""
        if len(shape) == 2:
            remedy = " Ids [B, T] go through an Embedding first; a recurrent layer gives it with return_sequences=True."
        raise ValueError(f"{name} has shape {tuple(shape)}; expected [B, T, D] with D known.{remedy}")
    return shape[-1]


def dtype_of(values) -> str:
    """Return the name of the dtype of a tensor or array of any backend."""
    return _dtype_name(values.dtype)


def _dtype_name(dtype) -> str:
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def dense(name: str, x, expected: str = "real numbers") -> None:
    """Raise unless `x` is a dense tensor of real numbers, integers or booleans.

    Args:
        name: Name of the tensor, for the message.
        x: A tensor or an array of any shape and backend, symbolic ones too.
        expected: What the tensor should hold, for the message.

    Raises:
        ValueError: It is not a tensor, is ragged or sparse, or holds complex numbers, strings or objects.
    """
    if not hasattr(x, "dtype"):
        if hasattr(x, "__array__"):  # a table, for example, that Keras converts
            return
        raise ValueError(f"{name} is {short_repr(x)}; expected a tensor or an array of {expected}.")
    if hasattr(x, "row_splits") or getattr(x, "ragged", False) or getattr(x, "is_nested", False):
        raise ValueError(f"{name} is ragged; expected [B, T, D]: pad it, as to_tensor() does, and give a mask [B, T].")
    if (
        getattr(x, "sparse", False)  # a `keras.Input`
        or any(hasattr(x, part) for part in ("dense_shape", "nse", "nnz"))  # of TensorFlow, JAX and SciPy
        or "sparse" in str(getattr(x, "layout", ""))  # of PyTorch
    ):
        raise ValueError(f"{name} is sparse; expected a dense tensor: convert it, as to_dense() does.")
    if not _is_number(x.dtype):
        raise ValueError(f"{name} has the dtype {dtype_of(x)}; expected {expected}.")


@functools.cache
def _is_number(dtype) -> bool:
    return re.fullmatch(r"bool|bfloat16|u?int\d+|float(8\w*|16|32|64)", _dtype_name(dtype)) is not None


@functools.cache
def _is_float(dtype) -> bool:
    return _is_number(dtype) and "float" in _dtype_name(dtype)


def real(name: str, x, dtype: str):
    """Return `x` as it is, or integers and booleans in a floating point dtype, in which products and means are right."""
    if is_torch_compiling():
        return x if torch.is_floating_point(x) else ops.cast(x, dtype)
    if _is_float(x.dtype):
        return x
    if not _is_number(x.dtype):
        raise ValueError(f"{name} has the dtype {dtype_of(x)}; expected real numbers.")
    return ops.cast(x, dtype)


def integers(name: str, values, remedy: str = ""):
    """Return `values` as int32, with -1 for values that are negative or do not fit in int32."""
    dtype = dtype_of(values)
    if "int" not in dtype:
        raise ValueError(f"{name} has the dtype {dtype}; expected integers{remedy}.")
    if dtype not in ("int64", "uint32", "uint64"):
        return ops.cast(values, "int32")
    fits = ops.logical_and(values >= 0, values <= MAX_INT32)
    return ops.where(fits, ops.cast(values, "int32"), -1)


def boolean_mask(name: str, mask, ranks: Collection[int], x=None):
    """Return `mask` as a boolean tensor; None stays None."""
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


def masked(name: str, x, mask, rank: int = 2) -> tuple:
    """Check a mask against `x`, as far as possible now, and otherwise when a graph runs."""
    checked = boolean_mask(name, mask, ranks=(rank,), x=x)
    for fits in (_holds_booleans(mask), _same_sizes(x, checked, rank)):
        if fits is not None:
            x, checked = ops.where(fits, x, float("nan")), ops.logical_or(checked, ops.logical_not(fits))
    return x, checked


def where_boolean(x, mask):
    """Return `x`, or NaN if a running graph finds an integer other than 0 and 1 in the mask."""
    fits = _holds_booleans(mask)
    return x if fits is None else ops.where(fits, x, float("nan"))


def _holds_booleans(mask):
    """Return whether a mask as it was passed holds 0 and 1 only, a boolean scalar; None where that is known."""
    if mask is None or not hasattr(mask, "shape") or dtype_of(mask) == "bool" or static_value(mask) is not None:
        return None
    return ops.all(ops.logical_or(ops.equal(mask, 0), ops.equal(mask, 1)))


def same_axes(name: str, values, x, rank: int) -> None:
    """Raise unless the shape of `values` equals the first axes of `x`, where both sizes are known."""
    shape, expected = tuple(values.shape), tuple(x.shape)[:rank]
    if len(shape) != len(expected) or any(
        size != expected_size and None not in (size, expected_size)
        for size, expected_size in zip(shape, expected, strict=True)
    ):
        axes = "[B, T]" if len(expected) == 2 else "[B]"
        raise ValueError(f"{name} has shape {shape}; expected {axes}, here {expected}.")


def with_axes_of(x, values, rank: int):
    """Return `x`, or NaN if a running graph finds that the first axes of `values` differ from those of `x`.

    A reshape would not detect that: TensorFlow removes reshapes between unknown shapes.
    """
    fits = _same_sizes(x, values, rank)
    return x if fits is None else ops.where(fits, x, float("nan"))


def _same_sizes(x, values, rank):
    """Return whether the first axes of two tensors are equal, a boolean scalar; None where that is known."""
    if values is None or None not in (*values.shape[:rank], *x.shape[:rank]):
        return None
    return ops.all(ops.stack([ops.equal(_counted(values, axis), _counted(x, axis)) for axis in range(rank)]))


def _counted(x, axis):
    """Return the size of an axis, counted by values: TensorFlow takes sizes for equal if a later addition needs it."""
    is_zero, others = ops.equal(x, 0), [n for n in range(len(x.shape)) if n != axis]
    exists = ops.all(ops.logical_or(is_zero, ops.logical_not(is_zero)), axis=others)
    return ops.sum(ops.cast(exists, "int32"))


def attention_mask(
    name: str, mask, batch_size: int | None, num_heads: int | None, query_length: int | None, key_length: int | None
):
    """Return an attention mask `[T, S]`, `[B, T, S]` or `[B, H, T, S]` as booleans; None stays None."""
    mask = boolean_mask(name, mask, ranks=(2, 3, 4))
    if mask is None:
        return None
    shape, axes = tuple(mask.shape), ("B", "H", "T", "S")
    sizes = dict(zip(axes, (batch_size, num_heads, query_length, key_length), strict=True))
    axes = {2: ("T", "S"), 3: ("B", "T", "S"), 4: axes}[len(shape)]
    expected = tuple(sizes[axis] for axis in axes)
    if any(
        size not in (1, None) and expected_size is not None and size != expected_size
        for size, expected_size in zip(shape, expected, strict=True)
    ):
        raise ValueError(
            f"{name} has shape {shape}; expected [{', '.join(axes)}], here {expected}, or 1 for any of them."
        )
    return mask


def ids_below(name: str, values, limit: int) -> None:
    """Raise unless all ids are from 0 to `limit` - 1; symbolic ids are not checked."""
    values = static_value(values)
    if values is None or not values.size:
        return
    smallest, largest = values.min(), values.max()
    if smallest < 0 or largest >= limit:
        raise ValueError(
            f"{name} holds {smallest if smallest < 0 else largest}; expected numbers from 0 to {limit - 1}."
        )


def static_value(values) -> np.ndarray | None:
    """Return the values of an eager tensor as a NumPy array, and None for a symbolic tensor and in compiled code."""
    if isinstance(values, keras.KerasTensor) or is_torch_compiling():
        return None
    try:
        return np.asarray(ops.convert_to_numpy(values))
    except (TypeError, RuntimeError, NotImplementedError):  # each backend raises another one for symbolic tensors
        return None


def is_torch_compiling() -> bool:
    """Return whether `torch.compile` traces this code: then there are neither values nor frames to look at."""
    return keras.backend.backend() == "torch" and torch.compiler.is_dynamo_compiling()

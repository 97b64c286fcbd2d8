"""Check tensors: kind, dtype, shape, masks. Raise a ValueError, or give NaN where a running graph finds out."""

import functools
import re
from collections.abc import Collection, Sequence

import keras
import numpy as np
from keras import ops

from keras_seq.checks import MAX_INT32, short_repr

if keras.backend.backend() == "torch":
    import torch


def at_least_float32(dtype) -> str:
    """Return `"float64"` for float64, which `keras.backend.result_type` narrows on JAX and torch, else `"float32"`."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


def where_valid(mask, x, otherwise: float = 0.0):
    """Return `x [B, T, ...]` with another number where `mask`, `[B, T]` or `[B]`, is false; None changes nothing."""
    if mask is None:
        return x
    for _ in x.shape[len(mask.shape) :]:
        mask = ops.expand_dims(mask, -1)
    return ops.where(mask, x, otherwise)


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
    """Raise unless `x` is a dense tensor or array of real numbers, integers or booleans, of any backend."""
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


def no_constant(layer: str, name: str, value, inputs) -> None:
    """Raise if a variable is an argument of a symbolic call: a functional model would keep a copy of its values."""
    if isinstance(value, keras.Variable) and isinstance(inputs, keras.KerasTensor):
        raise ValueError(
            f"{layer}: {name} is the variable {value.path}, which a functional model would keep as a constant; "
            "expected both layers to be called within the call of a layer or model of your own."
        )


@functools.cache
def _is_number(dtype) -> bool:
    return re.fullmatch(r"bool|bfloat16|u?int\d+|float(8\w*|16|32|64)", _dtype_name(dtype)) is not None


@functools.cache
def _is_float(dtype) -> bool:
    return _is_number(dtype) and "float" in _dtype_name(dtype)


def real(name: str, x, dtype: str):
    """Return `x` as it is, or integers and booleans in a floating point dtype."""
    if is_torch_compiling():
        return x if torch.is_floating_point(x) else ops.cast(x, dtype)
    if _is_float(x.dtype):
        return x
    if not _is_number(x.dtype):
        raise ValueError(f"{name} has the dtype {dtype_of(x)}; expected real numbers.")
    return ops.cast(x, dtype)


def integers(name: str, values):
    """Return `values` as int32, with -1 for values that are negative or do not fit in int32."""
    dtype = dtype_of(values)
    if "int" not in dtype:
        raise ValueError(f"{name} has the dtype {dtype}; expected integers.")
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
    if x is not None:
        same_axes(name, mask, x, len(shape))
    return ops.cast(mask, "bool")


def masked(name: str, x, mask) -> tuple:
    """Check a mask `[B, T]` against `x`, as far as possible now, and otherwise when a graph runs."""
    checked = boolean_mask(name, mask, ranks=(2,), x=x)
    for fits in (_holds_booleans(mask), _same_sizes(x, checked, rank=2)):
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
    if len(shape) != len(expected) or any(a != b and None not in (a, b) for a, b in zip(shape, expected, strict=True)):
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
    shape, sizes = tuple(mask.shape), {"B": batch_size, "H": num_heads, "T": query_length, "S": key_length}
    axes = {2: "TS", 3: "BTS", 4: "BHTS"}[len(shape)]
    expected = tuple(sizes[axis] for axis in axes)
    if any(a not in (1, b) and None not in (a, b) for a, b in zip(shape, expected, strict=True)):
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


def keras_mask(x):
    """Return the mask that Keras keeps for the output of a layer, such as `[B, T]` for logits `[B, T, V]`, or None.

    Where Keras keeps it depends on the backend and on what is compiled, but it hands it to every layer that takes a
    mask: so a layer reads it.
    """
    return _mask_reader()(x)


@functools.cache
def _mask_reader():
    return _MaskReader(name="keras_mask", autocast=False)  # a cast copy would have no mask


@keras.saving.register_keras_serializable(package="keras_seq")
class _MaskReader(keras.Layer):
    def call(self, inputs, mask=None):
        return mask

    def compute_mask(self, inputs, previous_mask):
        return None  # the mask itself has none

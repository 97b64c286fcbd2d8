"""The key/value cache: keys and values of earlier positions, in arrays of a fixed capacity S.

    {"key": [B, S, G, K], "value": [B, S, G, K'], "position": [B, S], "length": scalar}

The first `length` slots are filled; `position` is the position of each slot in its row (-1: empty or padding). A key is
NaN where the inputs of a document were not finite. Shapes and dtypes never change, so a cache can be a loop variable,
and a step is traced once.

A layer with a sliding window needs no more slots than the window: there the slots hold the last positions, in ascending
order, and `length` counts all that were ever appended.
"""

from collections.abc import Mapping

from keras import ops

from keras_seq.layers.base.state import shapes
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import write_slots
from keras_seq.ops.tensor_checks import where_valid


def empty_cache(batch_size, capacity: int, num_heads: int, key_dim: int, value_dim: int, dtype):
    """Create an empty cache of S = `capacity` slots for G = `num_heads` key and value heads."""
    return {
        "key": ops.zeros((batch_size, capacity, num_heads, key_dim), dtype),
        "value": ops.zeros((batch_size, capacity, num_heads, value_dim), dtype),
        "position": ops.full((batch_size, capacity), -1, dtype="int32"),
        "length": ops.zeros((), dtype="int32"),
    }


def full_cache(key, value, positions):
    """Create a cache of T filled slots from `[B, T, G, K]`, `[B, T, G, K']` and positions `[T]` or `[B, T]`."""
    batch_size, length = ops.shape(key)[:2]
    return {
        "key": key,
        "value": value,
        "position": ops.broadcast_to(positions, (batch_size, length)),
        "length": ops.convert_to_tensor(length, dtype="int32"),
    }


def cache_shapes(cache, batch_size, num_heads: int, key_dim: int, value_dim: int):
    """Return the expected `shapes` of a cache, which may be anything, for the capacity that its positions have."""
    position = shapes(cache).get("position") if isinstance(cache, Mapping) else None
    capacity = position[1] if isinstance(position, list) and len(position) == 2 else None
    return {
        "key": [batch_size, capacity, num_heads, key_dim],
        "value": [batch_size, capacity, num_heads, value_dim],
        "position": [batch_size, capacity],
        "length": [],
    }


def next_position(cache):
    """Return the number of non-padding positions in each row, `[B]`, which is the position of the next element."""
    return ops.max(cache["position"], axis=1) + 1


def append_to_cache(cache, key, value, positions):
    """Write T more slots, of positions `[B, T]`, and return the new cache.

    Too many raise a ValueError where the length is known; in compiled code the new values are NaN.
    """
    capacity, steps, length = cache["key"].shape[1], key.shape[1], cache["length"]
    length_so_far = tensor_checks.static_value(length)
    if steps is not None and capacity is not None and (length_so_far or 0) + steps > capacity:
        raise ValueError(
            f"state holds {'an unknown number' if length_so_far is None else length_so_far} of capacity={capacity} "
            f"positions, and {steps} more do not fit; expected a state with a larger capacity from get_initial_state."
        )
    length = ops.cast(length, "int32")
    new_length = length + ops.shape(key)[1]
    value = ops.where(new_length <= ops.shape(cache["key"])[1], value, float("nan"))
    return {
        "key": _write(cache["key"], length, key),
        "value": _write(cache["value"], length, value),
        "position": _write(cache["position"], length, positions),
        "length": new_length,
    }


def _write(slots, start, new):
    """Replace `[B, T, ...]` of the slots `[B, S, ...]`, from a slot on that may be unknown."""
    return write_slots(slots, start, ops.cast(new, slots.dtype))


def appended_segments(cache, segments):
    """Return the number of the document of every slot, `[B, S]`, 0 for those filled already; or None."""
    if segments is None:
        return None
    return _write(ops.zeros_like(ops.cast(cache["position"], "int32")), ops.cast(cache["length"], "int32"), segments)


def without_earlier_documents(cache, segments):
    """Mark the slots of all documents but the last as empty, and forget their keys, which may be NaN."""
    is_last = ops.equal(segments, ops.max(segments, axis=1, keepdims=True))
    position = ops.where(is_last, cache["position"], -1)
    return {**cache, "key": where_valid(is_last, cache["key"]), "position": position}


def append_to_window(cache, key, value, positions, is_masked: bool, segments=None):
    """Append T positions to a cache of the last S positions, S at least the sliding window.

    It returns all S + T slots, to which the T queries attend, the numbers of their documents or None, and the new
    cache: the last S of them that are no padding, of the last document only.
    """
    size = cache["position"].shape[1]
    positions = ops.broadcast_to(ops.cast(positions, "int32"), ops.shape(key)[:2])
    new = {"key": key, "value": value, "position": positions}
    all_slots = {name: ops.concatenate([cache[name], ops.cast(new[name], cache[name].dtype)], axis=1) for name in new}
    slots = all_slots
    if segments is not None:
        earlier = ops.zeros_like(ops.cast(cache["position"], "int32"))
        segments = ops.concatenate([earlier, ops.cast(segments, "int32")], axis=1)
        slots = without_earlier_documents(all_slots, segments)
    last = {name: part[:, -size:] for name, part in (in_order(slots) if is_masked else slots).items()}
    return all_slots, segments, {**last, "length": ops.cast(cache["length"], "int32") + ops.shape(key)[1]}


def in_order(cache):
    """Return the slots of a cache in ascending order of their positions, empty ones and padding first."""
    order = ops.argsort(cache["position"], axis=1)
    indices = {"key": order[:, :, None, None], "value": order[:, :, None, None], "position": order}
    return cache | {name: ops.take_along_axis(cache[name], index, axis=1) for name, index in indices.items()}

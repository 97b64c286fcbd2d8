"""The key/value cache: keys and values of earlier positions, in arrays of a fixed capacity S.

    {"key": [B, S, G, K], "value": [B, S, G, K'], "position": [B, S], "length": scalar}

The first `length` slots are filled; `position` is the position of each slot in its row (-1: empty or padding). A key is
NaN where the inputs of a document were not finite. With forget gates there is "decay_sum": [B, S, H], too, the log
decays up to each slot, summed in float32 or wider; only differences of them count. Shapes and dtypes never change, so a
cache can be a loop variable, and a step is traced once.

A layer with a sliding window needs no more slots than the window: there the slots hold the last positions, in ascending
order, and `length` counts all that were ever appended.
"""

from collections.abc import Mapping

from keras import ops

from keras_seq.layers.base.state import shapes
from keras_seq.ops import tensor_checks
from keras_seq.ops.attention import write_slots
from keras_seq.ops.tensor_checks import at_least_float32, where_valid


def empty_cache(batch_size, capacity: int, slot_shapes: dict[str, tuple[int, ...]], dtype):
    """Create an empty cache of S = `capacity` slots, of which one holds tensors of these shapes."""
    dtypes = dict.fromkeys(slot_shapes, dtype) | {"decay_sum": at_least_float32(dtype)}
    slots = {name: ops.zeros((batch_size, capacity, *shape), dtypes[name]) for name, shape in slot_shapes.items()}
    return {
        **slots,
        "position": ops.full((batch_size, capacity), -1, dtype="int32"),
        "length": ops.zeros((), dtype="int32"),
    }


def full_cache(slots):
    """Create a cache of T filled slots: their tensors `[B, T, ...]` and positions `[T]` or `[B, T]`."""
    batch_size, length = ops.shape(slots["key"])[:2]
    return {
        **slots,
        "position": ops.broadcast_to(slots["position"], (batch_size, length)),
        "length": ops.convert_to_tensor(length, dtype="int32"),
    }


def cache_shapes(cache, batch_size, slot_shapes: dict[str, tuple[int, ...]]):
    """Return the expected `shapes` of a cache, which may be anything, for the capacity that its positions have."""
    position = shapes(cache).get("position") if isinstance(cache, Mapping) else None
    capacity = position[1] if isinstance(position, list) and len(position) == 2 else None
    return {
        **{name: [batch_size, capacity, *shape] for name, shape in slot_shapes.items()},
        "position": [batch_size, capacity],
        "length": [],
    }


def next_position(cache):
    """Return the number of non-padding positions in each row, `[B]`, which is the position of the next element."""
    return ops.max(cache["position"], axis=1) + 1


def decay_sums_before(cache):
    """Return the decay sums of a cache from its last position on, zeros there: those of the next positions go on."""
    is_filled = ops.expand_dims(cache["position"] >= 0, -1)
    last = ops.min(ops.where(is_filled, cache["decay_sum"], 1e30), axis=1, keepdims=True)  # sums never grow
    return ops.where(is_filled, cache["decay_sum"] - last, 0)


def append_to_cache(cache, slots):
    """Write T more slots `[B, T, ...]`, of positions `[B, T]`, and return the new cache.

    Too many raise a ValueError where the length is known; in compiled code the new values are NaN.
    """
    capacity, steps, length = cache["key"].shape[1], slots["key"].shape[1], cache["length"]
    length_so_far = tensor_checks.static_value(length)
    if steps is not None and capacity is not None and (length_so_far or 0) + steps > capacity:
        raise ValueError(
            f"state holds {'an unknown number' if length_so_far is None else length_so_far} of capacity={capacity} "
            f"positions, and {steps} more do not fit; expected a state with a larger capacity from get_initial_state."
        )
    length = ops.cast(length, "int32")
    new_length = length + ops.shape(slots["key"])[1]
    slots = slots | {"value": ops.where(new_length <= ops.shape(cache["key"])[1], slots["value"], float("nan"))}
    written = {n: write_slots(cache[n], length, ops.cast(new, cache[n].dtype)) for n, new in slots.items()}
    return {**written, "length": new_length}


def appended_segments(cache, segments):
    """Return the number of the document of every slot, `[B, S]`, 0 for those filled already; or None."""
    if segments is None:
        return None
    earlier = ops.zeros_like(ops.cast(cache["position"], "int32"))
    return write_slots(earlier, ops.cast(cache["length"], "int32"), ops.cast(segments, "int32"))


def without_earlier_documents(cache, segments):
    """Mark the slots of all documents but the last as empty, and forget their keys and values, which may be NaN."""
    is_last = ops.equal(segments, ops.max(segments, axis=1, keepdims=True))
    position = ops.where(is_last, cache["position"], -1)
    slots = {name: where_valid(is_last, cache[name]) for name in ("key", "value")}
    return {**cache, **slots, "position": position}


def append_to_window(cache, slots, is_masked: bool, segments=None):
    """Append T slots to a cache of the last S positions, S at least the sliding window.

    It returns all S + T slots, to which the T queries attend, the numbers of their documents or None, and the new
    cache: the last S of them that are no padding, of the last document only.
    """
    size, (batch_size, length) = cache["position"].shape[1], ops.shape(slots["key"])[:2]
    slots = slots | {"position": ops.broadcast_to(ops.cast(slots["position"], "int32"), (batch_size, length))}
    all_slots = {
        name: ops.concatenate([cache[name], ops.cast(new, cache[name].dtype)], axis=1) for name, new in slots.items()
    }
    slots = all_slots
    if segments is not None:
        earlier = ops.zeros_like(ops.cast(cache["position"], "int32"))
        segments = ops.concatenate([earlier, ops.cast(segments, "int32")], axis=1)
        slots = without_earlier_documents(all_slots, segments)
    last = {name: part[:, -size:] for name, part in (in_order(slots) if is_masked else slots).items()}
    return all_slots, segments, {**last, "length": ops.cast(cache["length"], "int32") + length}


def in_order(cache):
    """Return the slots of a cache in ascending order of their positions, empty ones and padding first."""
    order = ops.argsort(cache["position"], axis=1)

    def sort(slots):
        index = ops.reshape(order, (*ops.shape(order), *[1] * (len(slots.shape) - 2)))
        return ops.take_along_axis(slots, index, axis=1)

    return cache | {name: sort(slots) for name, slots in cache.items() if name != "length"}

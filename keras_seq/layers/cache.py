"""The key/value cache: keys and values of earlier positions, in arrays of a fixed capacity S.

    {"key": [B, S, G, K], "value": [B, S, G, K'], "position": [B, S], "length": scalar}

The first `length` slots are filled; `position` is the position of each slot in its row (-1: empty or padding). Shapes
and dtypes never change, so a cache can be a loop variable, and a step is traced once.

A layer with a sliding window needs no more slots than the window: there the slots hold the last positions, in ascending
order, and `length` counts all that were ever appended.
"""

from collections.abc import Mapping

from keras import ops

from keras_seq import checks
from keras_seq.layers.state_checks import shapes


def empty_cache(batch_size, capacity: int, num_heads: int, key_dim: int, value_dim: int, dtype):
    """Create an empty cache.

    Args:
        batch_size: B.
        capacity: S, number of slots.
        num_heads: G, number of key and value heads.
        key_dim: K, width of a key head.
        value_dim: K', width of a value head.
        dtype: Dtype of keys and values.

    Returns:
        A cache.
    """
    return {
        "key": ops.zeros((batch_size, capacity, num_heads, key_dim), dtype),
        "value": ops.zeros((batch_size, capacity, num_heads, value_dim), dtype),
        "position": ops.full((batch_size, capacity), -1, dtype="int32"),
        "length": ops.zeros((), dtype="int32"),
    }


def full_cache(key, value, positions):
    """Create a cache of T filled slots.

    Args:
        key: `[B, T, G, K]`.
        value: `[B, T, G, K']`.
        positions: `[T]` or `[B, T]`.

    Returns:
        A cache of capacity T.
    """
    batch_size, length = ops.shape(key)[:2]
    return {
        "key": key,
        "value": value,
        "position": ops.broadcast_to(positions, (batch_size, length)),
        "length": ops.convert_to_tensor(length, dtype="int32"),
    }


def cache_shapes(cache, batch_size, num_heads: int, key_dim: int, value_dim: int):
    """Return the expected shapes of a cache, for the capacity that its positions have.

    Args:
        cache: The cache to check, of any structure.
        batch_size: B, or None if unknown.
        num_heads: G, number of key and value heads.
        key_dim: K, width of a key head.
        value_dim: K', width of a value head.

    Returns:
        A dict of shapes, as `check_state` takes them.
    """
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
    """Write T more slots.

    Args:
        cache: A cache.
        key: `[B, T, G, K]`.
        value: `[B, T, G, K']`.
        positions: `[B, T]`.

    Returns:
        The new cache. If the capacity is exceeded in compiled code, where the length is unknown, the new values are
        NaN.

    Raises:
        ValueError: If the length is known and the capacity is exceeded.
    """
    capacity, steps, length = cache["key"].shape[1], key.shape[1], cache["length"]
    length_so_far = checks.static_value(length)
    if steps is not None and capacity is not None and (length_so_far or 0) + steps > capacity:
        raise ValueError(
            f"state holds {'an unknown number' if length_so_far is None else length_so_far} of capacity={capacity} "
            f"positions, and {steps} more do not fit; expected a state with a larger capacity from get_initial_state."
        )
    length = ops.cast(length, "int32")
    new_length = length + ops.shape(key)[1]
    value = ops.where(new_length <= ops.shape(cache["key"])[1], value, float("nan"))
    zero = ops.zeros((), "int32")
    return {
        "key": ops.slice_update(cache["key"], (zero, length, zero, zero), ops.cast(key, cache["key"].dtype)),
        "value": ops.slice_update(cache["value"], (zero, length, zero, zero), ops.cast(value, cache["value"].dtype)),
        "position": ops.slice_update(cache["position"], (zero, length), ops.cast(positions, "int32")),
        "length": new_length,
    }


def append_to_window(cache, key, value, positions, is_masked: bool):
    """Append T positions to a cache of the last S positions, S at least the sliding window.

    Args:
        cache: A cache.
        key: `[B, T, G, K]`.
        value: `[B, T, G, K']`.
        positions: `[T]` or `[B, T]`.
        is_masked: Whether some of the positions may be padding.

    Returns:
        `(joined, cache)`: keys, values and positions of all S + T slots, which the T queries attend to, as a dict, and
        the new cache, their last S non-padding ones.
    """
    size = cache["position"].shape[1]
    positions = ops.broadcast_to(ops.cast(positions, "int32"), ops.shape(key)[:2])
    new = {"key": key, "value": value, "position": positions}
    joined = {name: ops.concatenate([cache[name], ops.cast(new[name], cache[name].dtype)], axis=1) for name in new}
    last = {name: part[:, -size:] for name, part in (in_order(joined) if is_masked else joined).items()}
    return joined, {**last, "length": ops.cast(cache["length"], "int32") + ops.shape(key)[1]}


def in_order(cache):
    """Return the slots of a cache in ascending order of their positions, empty ones and padding first.

    Args:
        cache: A dict of keys, values and positions; further parts are returned unchanged.
    """
    order = ops.argsort(cache["position"], axis=1)
    indices = {"key": order[:, :, None, None], "value": order[:, :, None, None], "position": order}
    return cache | {name: ops.take_along_axis(cache[name], index, axis=1) for name, index in indices.items()}

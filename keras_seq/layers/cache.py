"""The key/value cache: what attention remembers of the positions before, at a fixed capacity S.

    {"key": [B, S, H, K], "value": [B, S, H, K'], "position": [B, S], "length": scalar}

`length` slots are written; `position` tells where each stands in its row (-1: empty or padding). Shapes and
dtypes never change, so a cache is a loop variable and a step is traced once.
"""

from collections.abc import Mapping

from keras import ops

from keras_seq.layers.state_checks import shapes


def empty_cache(batch_size, capacity, num_heads, key_dim, value_dim, dtype):
    """A cache of `capacity` slots with nothing in it."""
    return {
        "key": ops.zeros((batch_size, capacity, num_heads, key_dim), dtype),
        "value": ops.zeros((batch_size, capacity, num_heads, value_dim), dtype),
        "position": ops.full((batch_size, capacity), -1, dtype="int32"),
        "length": ops.zeros((), dtype="int32"),
    }


def full_cache(key, value, positions):
    """A cache that holds exactly these, `positions [T]` or `[B, T]`, with no room for more."""
    batch_size, length = ops.shape(key)[:2]
    return {
        "key": key,
        "value": value,
        "position": ops.broadcast_to(positions, (batch_size, length)),
        "length": ops.convert_to_tensor(length, dtype="int32"),
    }


def cache_shapes(cache, batch_size, num_heads, key_dim, value_dim):
    """The shapes that a cache has to have, whatever its capacity, which is told by its positions."""
    position = shapes(cache).get("position") if isinstance(cache, Mapping) else None
    capacity = position[1] if isinstance(position, list) and len(position) == 2 else None
    return {
        "key": [batch_size, capacity, num_heads, key_dim],
        "value": [batch_size, capacity, num_heads, value_dim],
        "position": [batch_size, capacity],
        "length": [],
    }


def next_position(cache):
    """The number of real positions in each row, `[B]`: where the next one stands."""
    return ops.max(cache["position"], axis=1) + 1


def append_to_cache(cache, key, value, positions):
    """The cache with T more slots written: `key [B, T, H, K]`, `value [B, T, H, K']`, `positions [B, T]`.

    Past its capacity a cache cannot go. Where the length is a number by now (eager calls), that is a `ValueError`;
    inside compiled code the values appended become NaN, so that no plausible output hides the mistake.
    """
    capacity, steps, length = cache["key"].shape[1], key.shape[1], cache["length"]
    written = concrete(length)
    if steps is not None and capacity is not None and (written or 0) + steps > capacity:
        raise ValueError(
            f"state holds {'an unknown number' if written is None else written} of capacity={capacity} positions and "
            f"cannot take {steps} more; give initial_state a larger capacity, or fill a new state with the last ones."
        )
    length = ops.cast(length, "int32")
    after = length + ops.shape(key)[1]
    value = ops.where(after <= ops.shape(cache["key"])[1], value, float("nan"))
    zero = ops.zeros((), "int32")
    return {
        "key": ops.slice_update(cache["key"], (zero, length, zero, zero), ops.cast(key, cache["key"].dtype)),
        "value": ops.slice_update(cache["value"], (zero, length, zero, zero), ops.cast(value, cache["value"].dtype)),
        "position": ops.slice_update(cache["position"], (zero, length), ops.cast(positions, "int32")),
        "length": after,
    }


def concrete(length):
    """The length as an int, or None while it is symbolic (every backend refuses `int` in its own words)."""
    try:
        return int(length)
    except (TypeError, RuntimeError, NotImplementedError):
        return None

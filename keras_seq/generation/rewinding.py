"""Take the last positions out of a state again, without reading the text once more.

    key/value cache     slots from position n on are marked as empty, and are the next to be written
    position counter    n

A state that holds nothing else can be rewound. That of a recurrent layer cannot: it does not say what it was before.
"""

from collections.abc import Mapping

import keras
from keras import ops, tree

from keras_seq.layers.introspection import iter_layers


def can_rewind(model, state) -> bool:
    """Return whether `rewound` suffices to take positions out of a state.

    Args:
        model: The model: a sliding window and documents forget what they no longer need, so they cannot be rewound.
        state: Any state of the model.
    """
    layers = [*iter_layers(model, attributes=True)]
    forgets = any(
        getattr(layer, name, None) is not None for layer in layers for name in ("sliding_window", "document_token")
    )
    rest = tree.flatten(tree.traverse(lambda part: () if _is_cache(part) else None, state))
    return not forgets and all(map(_is_integer, rest))


def rewound(before, after, count):
    """Return a state after the first `count` of the positions that were read between two states.

    Where it cannot be rewound, `after` has to be the state after `count` positions followed by padding, whose slots
    become free.

    Args:
        before: The state before.
        after: The state after at least `count` positions.
        count: An integer tensor.
    """

    def rewind(before, after):
        if not _is_integer(after):
            return after
        if len(after.shape) == 2:  # positions of the slots
            return ops.where(after <= ops.max(before, axis=1, keepdims=True) + count, after, -1)
        return ops.minimum(after, before + count)

    return tree.map_structure(rewind, before, after)


def with_free_slots(state, count: int):
    """Return a state whose caches have `count` more slots, all empty.

    Args:
        state: A state.
        count: Number of slots.
    """

    def extend(part):
        if not _is_cache(part):
            return None
        empty = {"key": 0, "value": 0, "position": -1}
        pads = {name: ((0, 0), (0, count), *[(0, 0)] * (len(part[name].shape) - 2)) for name in empty}
        return {**part, **{name: ops.pad(part[name], pads[name], constant_values=empty[name]) for name in empty}}

    return tree.traverse(extend, state)


def _is_cache(part):
    return isinstance(part, Mapping) and "position" in part


def _is_integer(x):
    return "int" in keras.backend.standardize_dtype(x.dtype)

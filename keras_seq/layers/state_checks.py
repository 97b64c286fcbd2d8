"""Is a state the one that a layer gives? Told by its nesting and its static shapes, which cost nothing.

[B, units]      ([B, units], [B, units])      {"key": [B, S, H, K], "value": ..., "position": ..., "length": []}
"""

from collections.abc import Mapping

from keras import ops

from keras_seq import checks

KINDS = {"position": ("int",), "length": ("int",), "mask": ("bool",)}  # of the parts of an attention's state
NUMBERS = ("float", "int")


def shapes(state):
    """The shapes of the tensors in a state, as lists, nested in tuples and dicts as they are; all else as it is."""
    if isinstance(state, Mapping):
        return {key: shapes(part) for key, part in state.items()}
    if isinstance(state, tuple | list):
        return tuple(shapes(part) for part in state)
    return list(state.shape) if hasattr(state, "shape") else state


def check_state(name, state, expected):
    """Refuses a state of other nesting or shapes, or of numbers that a cast would make others.

    Args:
        name: of the layer or model, for the message.
        state: what was given.
        expected: its `shapes`, None for a size that is not known.
    """
    given = shapes(state)
    if not _agree(given, expected):
        raise ValueError(
            f"{name}: state has the shapes {given}; expected {expected}, as initial_state gives them for the rows of x."
        )
    _check_dtypes(name, state)


def _check_dtypes(name, state, kinds=NUMBERS):
    if isinstance(state, Mapping):
        for key, part in state.items():
            _check_dtypes(name, part, KINDS.get(key, NUMBERS))
    elif isinstance(state, tuple | list):
        for part in state:
            _check_dtypes(name, part)
    elif not any(kind in checks.dtype_of(state) for kind in kinds):
        wanted = "real numbers" if kinds == NUMBERS else {"int": "integers", "bool": "booleans"}[kinds[0]]
        raise ValueError(
            f"{name}: a part of the state has the dtype {checks.dtype_of(state)}; expected {wanted}, as "
            "initial_state gives them."
        )


def _agree(given, expected):
    if isinstance(expected, dict):
        return (
            isinstance(given, dict)
            and given.keys() == expected.keys()
            and all(_agree(given[key], part) for key, part in expected.items())
        )
    if type(given) is not type(expected) or len(given) != len(expected):
        return False
    if isinstance(expected, tuple):
        return all(map(_agree, given, expected))
    return all(own is None or size is None or own == size for own, size in zip(given, expected, strict=True))


def as_initial(state, initial):
    """A checked state, nested as the initial one and in its dtypes."""
    if isinstance(initial, Mapping):
        return {key: as_initial(state[key], part) for key, part in initial.items()}
    if isinstance(initial, tuple):
        return tuple(map(as_initial, state, initial))
    return ops.cast(state, initial.dtype)

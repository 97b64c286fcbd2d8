"""Check the structure, static shapes and dtypes of a state against those of the initial state.

[B, units]      ([B, units], [B, units])      {"key": [B, S, H, K], "value": ..., "position": ..., "length": []}
"""

from collections.abc import Mapping

from keras import ops

from keras_seq import checks

PART_DTYPES = {
    "position": ("int",),
    "length": ("int",),
    "mask": ("bool",),
}  # by key, of attention states; all others are NUMERIC_DTYPES
NUMERIC_DTYPES = ("float", "int")


def shapes(state):
    """Return the shapes of the tensors in a state as lists, nested as the state is.

    Other values are returned unchanged.
    """
    if isinstance(state, Mapping):
        return {key: shapes(part) for key, part in state.items()}
    if isinstance(state, tuple | list):
        return tuple(shapes(part) for part in state)
    return list(state.shape) if hasattr(state, "shape") else state


def check_state(name: str, state, expected):
    """Check that a state has the expected `shapes`, None if unknown, and dtypes that can be cast without loss."""
    actual = shapes(state)
    if not _agree(actual, expected):
        raise ValueError(
            f"{name}: state has the shapes {actual}; expected {expected}, as get_initial_state returns them for this "
            "batch size."
        )
    _check_dtypes(name, state)


def _check_dtypes(name, state, dtypes=NUMERIC_DTYPES):
    if isinstance(state, Mapping):
        for key, part in state.items():
            _check_dtypes(name, part, PART_DTYPES.get(key, NUMERIC_DTYPES))
    elif isinstance(state, tuple | list):
        for part in state:
            _check_dtypes(name, part)
    elif not any(dtype in checks.dtype_of(state) for dtype in dtypes):
        expected = "real numbers" if dtypes == NUMERIC_DTYPES else {"int": "integers", "bool": "booleans"}[dtypes[0]]
        raise ValueError(
            f"{name}: a tensor of the state has the dtype {checks.dtype_of(state)}; expected {expected}, as "
            "get_initial_state returns it."
        )


def _agree(actual, expected):
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and actual.keys() == expected.keys()
            and all(_agree(actual[key], part) for key, part in expected.items())
        )
    if type(actual) is not type(expected) or len(actual) != len(expected):
        return False
    if isinstance(expected, tuple):
        return all(map(_agree, actual, expected))
    return all(
        actual_size is None or size is None or actual_size == size
        for actual_size, size in zip(actual, expected, strict=True)
    )


def cast_like(state, initial):
    """Return a state that passed `check_state` with the structure and dtypes of the initial state."""
    if isinstance(initial, Mapping):
        return {key: cast_like(state[key], part) for key, part in initial.items()}
    if isinstance(initial, tuple):
        return tuple(map(cast_like, state, initial))
    return ops.cast(state, initial.dtype)

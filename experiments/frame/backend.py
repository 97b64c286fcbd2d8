"""Check KERAS_BACKEND before Keras is imported, which would raise without saying what was expected."""

import importlib.util
import sys

BACKENDS = ("tensorflow", "jax", "torch", "numpy")  # numpy trains nothing


def check_backend(name: str):
    """Exit with status 2 and one sentence unless a backend of this name is there; an empty name is Keras's default."""
    if name and name not in BACKENDS:
        print(f"KERAS_BACKEND={name}: expected tensorflow, jax or torch.", file=sys.stderr)
        sys.exit(2)
    if name and importlib.util.find_spec(name) is None:
        print(f"KERAS_BACKEND={name}: {name} is not installed; install it, or choose another.", file=sys.stderr)
        sys.exit(2)

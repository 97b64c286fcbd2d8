"""Check Keras's backend before Keras is imported, which would raise without saying what was expected."""

import importlib.util
import os
import pathlib
import sys

BACKENDS = ("tensorflow", "jax", "torch", "numpy")  # numpy trains nothing
DEFAULT = "tensorflow"
ENVIRONMENT = pathlib.Path(__file__).parents[2] / ".venv"  # where `make` installs


def check_backend(name: str | None):
    """Exit with status 2 and one sentence unless the backend is there.

    Args:
        name: The value of KERAS_BACKEND: None stands for the default of the experiments, an empty one for Keras's.
    """
    if name and name not in BACKENDS:
        print(f"KERAS_BACKEND={name}: expected tensorflow, jax or torch.", file=sys.stderr)
        sys.exit(2)
    needed = DEFAULT if name is None else name
    if needed and importlib.util.find_spec(needed) is None:
        subject = f"The default backend, {needed}," if name is None else f"KERAS_BACKEND={name}: {name}"
        print(f"{subject} is not installed in {sys.executable}; {_remedy(needed)}.", file=sys.stderr)
        sys.exit(2)


def _remedy(name):
    """Return what to do: use the environment of this clone, if it is another one and has the backend."""
    has_it = any(any(ENVIRONMENT.glob(f"{folder}/site-packages/{name}")) for folder in ("lib/python*", "Lib"))
    if has_it and not os.path.samefile(ENVIRONMENT, sys.prefix):
        python = next(path for path in ("bin/python", "Scripts/python.exe") if (ENVIRONMENT / path).exists())
        return f"{os.path.relpath(ENVIRONMENT / python)} has it: run that one, or activate its environment"
    return "install it there, or set KERAS_BACKEND to another"

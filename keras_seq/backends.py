"""Find the backend and the folder of Keras before Keras is imported, and the cores that there are."""

import importlib.util
import json
import os
import pathlib
import sys

BACKENDS = ("tensorflow", "jax", "torch")


def installed_backends() -> list[str]:
    """Return the backends that are installed, TensorFlow first."""
    return [name for name in BACKENDS if importlib.util.find_spec(name) is not None]


def chosen_backend() -> str:
    """Return the backend that Keras will take: that of KERAS_BACKEND, of keras.json, or TensorFlow."""
    if name := os.environ.get("KERAS_BACKEND"):
        return name
    try:
        return json.loads((keras_home() / "keras.json").read_text(encoding="utf-8")).get("backend", BACKENDS[0])
    except (OSError, ValueError, AttributeError):
        return BACKENDS[0]


def keras_home() -> pathlib.Path:
    """Return Keras's folder: KERAS_HOME, or .keras in the home, or in /tmp where the home cannot be written."""
    home = os.path.expanduser("~")
    return pathlib.Path(os.environ.get("KERAS_HOME") or f"{home if os.access(home, os.W_OK) else '/tmp'}/.keras")


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_backend() -> None:
    """Raise an ImportError with one sentence if the backend that Keras will take is not installed."""
    name = chosen_backend()
    if "keras" in sys.modules or name not in BACKENDS or importlib.util.find_spec(name) is not None:
        return
    others = installed_backends()
    remedy = f"set KERAS_BACKEND={others[0]}, which is" if others else f'pip install "keras_seq[{name}]"'
    raise ImportError(f"Keras's backend {name} is not installed in {sys.executable}: {remedy}.", name=name)

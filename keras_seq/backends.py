"""Find the backend of Keras before Keras is imported."""

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
    home = pathlib.Path(os.environ.get("KERAS_HOME") or pathlib.Path("~/.keras").expanduser())
    try:
        return json.loads((home / "keras.json").read_text(encoding="utf-8")).get("backend", BACKENDS[0])
    except (OSError, ValueError, AttributeError):
        return BACKENDS[0]


def require_backend() -> None:
    """Raise an ImportError with one sentence if the backend that Keras will take is not installed."""
    name = chosen_backend()
    if "keras" in sys.modules or name not in BACKENDS or importlib.util.find_spec(name) is not None:
        return
    others = installed_backends()
    remedy = f"set KERAS_BACKEND={others[0]}, which is" if others else f'pip install "keras_seq[{name}]"'
    raise ImportError(f"Keras's backend {name} is not installed in {sys.executable}: {remedy}.", name=name)

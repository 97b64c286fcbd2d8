"""Test which devices the Keras backend may compute on."""

import functools
import importlib
import pathlib
import re

import keras


@functools.cache
def on_cpu() -> bool:
    """Return whether the backend has no GPU to compute on."""
    backend = importlib.import_module(keras.backend.backend())
    if keras.backend.backend() == "tensorflow":
        return not backend.config.list_logical_devices("GPU")
    return backend.default_backend() == "cpu" if keras.backend.backend() == "jax" else not backend.cuda.is_available()


@functools.cache
def cpu_multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for products of bfloat16 matrices; False where it cannot be told.

    Without them, such a product takes longer than in float32.
    """
    path = pathlib.Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", text))

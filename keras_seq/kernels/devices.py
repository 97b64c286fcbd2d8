"""Test which devices TensorFlow may compute on."""

import functools
import pathlib
import re

import tensorflow as tf


@functools.cache
def on_cpu() -> bool:
    """Return whether TensorFlow has no GPU to compute on."""
    return not tf.config.list_logical_devices("GPU")


@functools.cache
def cpu_multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for products of bfloat16 matrices; False where it cannot be told.

    Without them, such a product takes longer than in float32.
    """
    path = pathlib.Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", text))

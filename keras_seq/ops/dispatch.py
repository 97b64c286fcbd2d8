"""Bind an operation to its optimized versions, and choose between them by a predicate; which device computes.

    @optimized                                                   lstm/__init__.py
    def lstm(z, recurrent_kernel, h, c, mask=None): ...          the formula, for every backend

    @lstm.on("tensorflow", supports=is_plain)                    lstm/tensorflow.py
    def fast_lstm(z, recurrent_kernel, h, c, mask=None): ...     a twin, of the same signature

`lstm(...)` runs the twin of Keras's backend if `is_plain(...)` is true for the arguments, else the reference.

Beside it: exports, Keras's devices, session and seeds.
"""

import contextlib
import functools
import inspect
import os
import pathlib
import re
from collections.abc import Callable

import keras
from keras import ops

if keras.backend.backend() == "torch":
    import torch

_enabled = True
_export_format = None


@contextlib.contextmanager
def reference():
    """Run the reference of every operation in this context (at tracing time, for compiled functions).

    ```python
    with keras_seq.ops.reference():
        y = layer(x)
    ```
    """
    global _enabled
    previous, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = previous


def twins_enabled() -> bool:
    """Return whether this is outside of `with reference():`."""
    return _enabled


def optimized(function: Callable) -> Callable:
    """Decorate a reference; its attribute `on` decorates twins, and `twin(*args)` returns that of a call, or None."""
    twins = []

    @functools.wraps(function)
    def operation(*args, **kwargs):
        return (twin(*args, **kwargs) or function)(*args, **kwargs)

    def twin(*args, **kwargs):
        if _enabled:
            for device, supports, candidate in twins:
                if (device is None or (device == "cpu") == on_cpu()) and supports(*args, **kwargs):
                    return candidate
        return None

    def on(backend, supports=lambda *args, **kwargs: True, device=None):
        """Decorate a twin for a backend, and for `"cpu"` or `"gpu"`; `supports` gets the arguments of a call."""

        def bind(candidate):
            if backend == keras.backend.backend():
                twins.append((device, supports, candidate))
            return candidate

        return bind

    operation.on, operation.twin, operation.twins = on, twin, twins
    return operation


# Exports: what files of ONNX and LiteRT know. `keras.Model.export` does not tell a layer that it traces it: the layer
# looks for it among its callers.


@contextlib.contextmanager
def exporting(format: str):
    """Run references in this context, with operations that a file of `"onnx"` or `"litert"` has."""
    global _export_format
    previous, _export_format = _export_format, format
    try:
        with reference():
            yield
    finally:
        _export_format = previous


def export_format() -> str | None:
    """Return the format of `with exporting(format):`, or None outside of it."""
    return _export_format


def exportable(activation):
    """Return the activation, which in an export to ONNX has operations that the format has."""
    on_tensorflow = keras.backend.backend() == "tensorflow"
    if export_format() != "onnx" or not on_tensorflow:
        return activation
    known = {keras.activations.gelu: _gelu, keras.activations.celu: keras.activations.elu}  # alpha of both is 1
    return known.get(activation, activation)


def _gelu(x):
    """Compute gelu by erf; TensorFlow's has erfc, which tf2onnx does not know."""
    return 0.5 * x * (1 + ops.erf(x * 0.5**0.5))


def keras_export() -> dict | None:
    """Return the arguments of the `keras.Model.export` to ONNX or LiteRT that makes this call, or None."""
    if keras.backend.backend() == "torch" and torch.compiler.is_dynamo_compiling():
        return None
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is _EXPORT and frame.f_locals.get("format") in ("onnx", "litert"):
            return frame.f_locals
        frame = frame.f_back
    return None


_EXPORT = inspect.unwrap(keras.Model.export).__code__


def refusal(name: str, format: str, reason: str) -> ValueError:
    """Return the error for a layer or model that `keras.Model.export` would write wrongly."""
    other = "torch" if keras.backend.backend() == "torch" else "tf_saved_model"
    return ValueError(
        f'{name} cannot be exported by Model.export(format="{format}"): {reason}; use keras_seq.export for a language '
        f'model with its state, or format="{other}".'
    )


def on_gpu() -> bool:
    """Return whether Keras, on any backend, has a GPU to compute on."""
    if keras.backend.backend() == "torch":
        return torch.cuda.is_available()
    return any(device.lower().startswith(("gpu", "cuda")) for device in keras.distribution.list_devices())


@functools.cache
def on_cpu() -> bool:
    """Return whether Keras has no GPU to compute on."""
    return not on_gpu()


@functools.cache
def cpu_multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for products of bfloat16 matrices; False where it cannot be told.

    Without them, TensorFlow rounds partial sums to bfloat16, and a product takes longer than in float32.
    """
    return bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", _processor_description()))


@functools.cache
def cpu_is_faster_in_bfloat16() -> bool:
    """Return whether products of matrices take less time in bfloat16 than in float32.

    Intel's AVX-512 instructions take twice as long, without AMX, which virtual machines may hide; AMD's half as long.
    """
    description = _processor_description()
    has_fast_avx512 = re.search(r"\bavx512_bf16\b", description) and "GenuineIntel" not in description
    return bool(has_fast_avx512 or re.search(r"\b(amx_bf16|bf16)\b", description))


def _processor_description():
    """Return what Linux says of the processor, else an empty text, and where oneDNN may use only a part of it."""
    path = pathlib.Path("/proc/cpuinfo")
    is_known = path.exists() and "ONEDNN_MAX_CPU_ISA" not in os.environ
    return path.read_text(encoding="utf-8", errors="replace") if is_known else ""


def divide_rows(x):
    """Divide the rows of `x [B, ...]` among the devices of Keras's distribution, inside compiled code.

    Without a distribution, or if its devices do not divide B, x stays as it is.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or x.shape[0] % distribution.num_model_replicas:
        return x
    return keras.distribution.distribute_tensor(x, distribution.get_data_layout(x.shape))


def clear_session(free_memory: bool = True) -> None:
    """Clear Keras's names and random state, but not its distribution, which `keras.backend.clear_session` drops.

    To free memory, too, takes a quarter of a second.
    """
    distribution = keras.distribution.distribution()
    keras.backend.clear_session(free_memory)
    keras.distribution.set_distribution(distribution)


def seed_dropout(seed: int) -> None:
    """Seed torch's own generator, from which Keras draws on torch for dropout without a seed; elsewhere do nothing."""
    if keras.backend.backend() == "torch":
        torch.manual_seed(seed)

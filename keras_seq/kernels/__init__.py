"""Optimized kernels for a few layer functions, nearly all for TensorFlow: same values and gradients in less time.

None of them is needed for correctness. A layer calls `dispatch("lstm", reference, *args)(*args)`: a predicate on
backend, device and shapes selects the optimized kernel or the layer's reference implementation. In the context
`with kernels.disabled():` all layers run their reference implementations.

Each module here holds `supports(*args)`, the predicate, and `apply(*args)`, with the signature of the reference.
"""

import contextlib
import importlib
from collections.abc import Callable

import keras

_OPTIMIZED = (
    *("recurrence", "gru", "lstm", "linear_recurrence", "log_linear_recurrence", "selective_scan"),
    *("bias_add", "causal_attention", "cudnn", "embedding_projection", "normalization", "xla_fusion"),
)
_BACKEND_MODULES = {("tensorflow", name): name for name in _OPTIMIZED} | {
    ("jax", "causal_attention"): "flash_attention",
    ("jax", "cudnn"): "cudnn",
}
_enabled = True


def _modules(backend):
    """Import the modules of a Keras backend, by the names that `dispatch` takes."""
    return {
        name: importlib.import_module(f"{__name__}.{module}")
        for (module_backend, name), module in _BACKEND_MODULES.items()
        if module_backend == backend
    }


# Imported here and not when needed: inside a tf.function AutoGraph would warn that it cannot read an import.
_MODULES = _modules(keras.backend.backend())


@contextlib.contextmanager
def disabled():
    """Run the reference implementation of every layer in this context (at tracing time, for compiled functions)."""
    global _enabled
    previous, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = previous


def dispatch(name: str, reference: Callable | None, *args):
    """Return the optimized kernel if it supports these arguments, else the reference implementation.

    Args:
        name: Name of the kernel: a function that a layer computes, such as `"lstm"`.
        reference: The reference implementation, or None to only test whether an optimized kernel applies.
        *args: The arguments that the function is about to be called with.

    Returns:
        `apply` of the kernel's module, or `reference`.

    Raises:
        ValueError: If there is no kernel of that name on any backend.
    """
    if name not in _OPTIMIZED:
        raise ValueError(f"name={name!r}; expected one of {', '.join(_OPTIMIZED)}.")
    module = _MODULES.get(name)
    return module.apply if _enabled and module and module.supports(*args) else reference


def xla_compiled(function: Callable) -> Callable:
    """Return the function, compiled by XLA where TensorFlow traces it for a CPU (see `kernels/xla_fusion.py`)."""
    module = _MODULES.get("xla_fusion")
    return module.xla_compiled(function) if _enabled and module else function

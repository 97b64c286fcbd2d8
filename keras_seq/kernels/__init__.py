"""Twins of a few layer functions, nearly all for TensorFlow: the same signature, values and gradients, less time.

Nothing here is needed for correctness. A layer calls `twin("lstm", definition, *args)(*args)`: a predicate on backend
and shape picks either its definition or the twin. `with kernels.disabled():` makes every layer run its definition.
"""

import contextlib
import importlib

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
    """The modules of a Keras backend by the name of what they are twins of."""
    of_backend = {name: module for (its, name), module in _BACKEND_MODULES.items() if its == backend}
    return {name: importlib.import_module(f"{__name__}.{module}") for name, module in of_backend.items()}


# Imported here and not when needed: inside somebody's tf.function AutoGraph would warn that it cannot read an import.
_MODULES = _modules(keras.backend.backend())


@contextlib.contextmanager
def disabled():
    """Inside this context every layer runs its definition (at tracing time, for compiled functions)."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def dispatch(name, definition, *args):
    """The twin of `definition` if it can run these arguments, else the definition itself.

    Args:
        name: the module in this folder, which holds `apply`, with the signature of `definition`, and `supports`.
        definition: the function of the layer, or None for whoever wants to know whether there is a twin.
        args: what the function is about to be called with.
    """
    if name not in _OPTIMIZED:
        raise ValueError(f"There is no kernel named {name!r}; those there are: {', '.join(_OPTIMIZED)}.")
    module = _MODULES.get(name)
    return module.apply if _enabled and module and module.supports(*args) else definition


def fused(function):
    """The same function; where TensorFlow traces it for a CPU, compiled by XLA (`kernels/compiled.py`)."""
    module = _MODULES.get("xla_fusion")
    return module.fused(function) if _enabled and module else function

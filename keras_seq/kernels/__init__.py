"""Optimized kernels for a few layer functions, by backend: same values and gradients in less time.

None of them is needed for correctness. A layer calls `dispatch("lstm", reference, *args)(*args)`: a predicate on
device, dtype and shapes selects the optimized kernel of Keras's backend or the layer's reference implementation. In the
context `with kernels.disabled():` all layers run their reference implementations.

A kernel is a module that holds `supports(*args)`, the predicate, and `apply(*args)`, with the signature of the
reference. `_KERNELS` names them all; only those of Keras's backend are imported.
"""

import contextlib
import importlib
from collections.abc import Callable

import keras

_KERNELS = {
    "tensorflow": {
        "bias_add": "tensorflow.bias_add",
        "causal_attention": "tensorflow.causal_attention",
        "checked_rows": "tensorflow.checked_rows",
        "embedding_projection": "tensorflow.embedding_projection",
        "fused_rnn": "cudnn",
        "gru": "tensorflow.gru",
        "linear_recurrence": "tensorflow.linear_recurrence",
        "log_linear_recurrence": "tensorflow.log_linear_recurrence",
        "lstm": "tensorflow.lstm",
        "masked_attention": "tensorflow.one_query_attention",
        "normalization": "tensorflow.normalization",
        "recurrence": "tensorflow.recurrence",
        "selective_scan": "tensorflow.selective_scan",
        "xla_fusion": "tensorflow.xla_fusion",
    },
    "jax": {
        "causal_attention": "jax.causal_attention",
        "fused_rnn": "cudnn",
        "linear_recurrence": "jax.linear_recurrence",
        "log_linear_recurrence": "jax.log_linear_recurrence",
        "lstm": "jax.lstm",
    },
    "torch": {
        "adam": "torch.adam",
        "add_all": "torch.add_all",
        "causal_attention": "torch.causal_attention",
        "cross_entropy": "torch.cross_entropy",
        "dense": "torch.dense",
        "direct_call": "torch.direct_call",
        "fused_rnn": "torch.fused_rnn",
        "joint_dense": "torch.joint_dense",
        "linear_recurrence": "torch.linear_recurrence",
        "log_linear_recurrence": "torch.log_linear_recurrence",
        "masked_attention": "torch.masked_attention",
        "normalization": "torch.normalization",
        "polar_express": "torch.polar_express",
        "replayed_step": "torch.replayed_step",
        "reshape": "torch.reshape",
        "scale_all": "torch.scale_all",
        "sums_of_squares": "torch.sums_of_squares",
        "weighted_sums": "torch.weighted_sums",
        "write_slots": "torch.write_slots",
    },
}
_NAMES = sorted({name for kernels in _KERNELS.values() for name in kernels})
_enabled = True


def _modules(backend):
    """Import the modules of a Keras backend, by the names that `dispatch` takes; there are none for NumPy."""
    return {name: importlib.import_module(f"{__name__}.{module}") for name, module in _KERNELS.get(backend, {}).items()}


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
    if name not in _NAMES:
        raise ValueError(f"name={name!r}; expected one of {', '.join(_NAMES)}.")
    module = _MODULES.get(name)
    return module.apply if _enabled and module and module.supports(*args) else reference


def xla_compiled(function: Callable) -> Callable:
    """Return the function, compiled by XLA where TensorFlow traces it for a CPU (see `tensorflow/xla_fusion.py`)."""
    module = _MODULES.get("xla_fusion")
    return module.xla_compiled(function) if _enabled and hasattr(module, "xla_compiled") else function

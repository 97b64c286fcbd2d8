"""Lists of the optimizer's tensors on torch, which belong in `training`: `dispatch(name, reference, *args)(*args)`."""

import importlib

import keras

from keras_seq.ops.dispatch import twins_enabled

_NAMES = ("adam", "add_all", "polar_express", "scale_all", "sums_of_squares", "weighted_sums")
_MODULES = {}
if keras.backend.backend() == "torch":
    _MODULES = {name: importlib.import_module(f"{__name__}.torch.{name}") for name in _NAMES}


def dispatch(name: str, reference, *args):
    """Return the optimized version if it supports these arguments, else the reference."""
    module = _MODULES.get(name)
    return module.apply if twins_enabled() and module and module.supports(*args) else reference

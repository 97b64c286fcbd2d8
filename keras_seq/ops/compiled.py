"""Compile a function of tensors that needs no gradients, for the Keras backend at hand.

TensorFlow    tf.function, traced once for each structure and shape of the arguments, by XLA where `jit_compile` is set,
              and again once the model has other weights, as after `enable_lora` or `quantize`, or other settings
JAX           jax.jit of (variables of the model, arguments), so that every call computes with the present weights;
              jitted again once the model has other settings; under a Keras distribution every device, and so every
              process, has the whole result
torch         the function itself, without gradients: torch.compile takes a minute for a step of a model. `traced`
              records the operations of a step once, by make_fx

Settings are the arguments of the constructors of all layers, which are attributes: `document_token`, `context_length`,
`dtype_policy` and the like may be set after the first call.
"""

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable

import keras
import numpy as np
from keras import ops, tree

from keras_seq.ops.dispatch import on_cpu, twins_enabled


def compiled(function: Callable, model, jit_compile: bool = False, reduce_retracing: bool = False) -> Callable:
    """Return a compiled version of a function of nests of tensors, which uses the model and `keras.ops`.

    Its arguments are positional, with NumPy arrays in place of tensors if need be. None of the model's variables is
    changed. TensorFlow compiles it by XLA if `jit_compile`, JAX always; with `reduce_retracing` TensorFlow traces it
    for any size of an axis once it has seen two. A function of an `ExportedModel` stays as it is.
    """
    if getattr(model, "is_exported", False):  # a runtime of its own computes it, from arrays
        return function
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return _TensorFlow(function, model, jit_compile=jit_compile or None, reduce_retracing=reduce_retracing)
    return (_jax if backend == "jax" else _torch)(function, model)


class _TensorFlow:
    """A tf.function for the weights that the model has now; for other weights a new one takes its place."""

    def __init__(self, function, model, **options):
        self.function, self.model, self.options = function, model, options
        self._weights, self._traced = (), None
        self._settings, self._values = Settings(model), None

    def __call__(self, *args):
        import tensorflow as tf

        values = self._settings()
        is_new = self._traced is None or values != self._values or not _same(self._weights, _weights(self.model))
        if is_new:
            self._traced = tf.function(self.function, autograph=False, **self.options)  # no branch depends on a value
        result = self._traced(*args)
        if is_new:
            self._weights = _weights(self.model)  # after the call, which builds a model that was not built
            self._settings = Settings(self.model)
            self._values = self._settings()
        return result

    def num_traces(self) -> int:
        """Return how often the function was traced for the present weights."""
        return 0 if self._traced is None else self._traced.experimental_get_tracing_count()


def _jax(function, model):
    import jax

    def with_variables(values, *args):
        with keras.StatelessScope(state_mapping=zip(_variables(model), values, strict=True)):
            return function(*args)

    distribution = keras.distribution.distribution()
    whole = distribution and keras.distribution.TensorLayout((), distribution.device_mesh).backend_layout
    settings, present, jitted = Settings(model), None, None

    def call(*args):
        nonlocal settings, present, jitted
        values = [variable.value for variable in _variables(model)]
        if jitted is None or settings() != present:
            # another function: JAX shares what it traced among those that are equal
            jitted = jax.jit(lambda *args: with_variables(*args), out_shardings=whole)
            result = jitted(values, *args)
            settings = Settings(model)  # after the call, which builds a model that was not built
            present = settings()
            return result
        return jitted(values, *args)

    return call


def _torch(function, model):
    import torch

    def without_gradients(*args):
        with torch.no_grad():
            return function(*tree.map_structure(_tensor, args))

    return without_gradients


def xla_compiled(function: Callable) -> Callable:
    """Return a function of tensors or lists of them, compiled by XLA where TensorFlow is about to trace it for a CPU.

    It may assign variables. It should not contain large matmuls in bfloat16, which are slow in XLA.
    """
    if keras.backend.backend() != "tensorflow" or not twins_enabled() or not on_cpu():
        return function
    import tensorflow as tf

    if tf.executing_eagerly():
        return function  # it would be compiled again at every call
    return tf.function(function, jit_compile=True, autograph=False)


def traced(function: Callable, model) -> Callable[[], Callable]:
    """Have torch record a function's operations once, and replay them in the calls within a compiled one.

    Keras's layers take several times as long in Python as the operations of a small step. Other backends have compiled
    them already. The function has no branch that depends on the value of a tensor. Returned is a function without
    arguments. It returns the function for the weights that the model has then, recorded once for each structure, shape
    and dtype of its arguments.
    """
    return _torch_traced(function, model) if keras.backend.backend() == "torch" else lambda: function


def _torch_traced(function, model):
    import optree  # in C++; torch's own, to which `keras.tree` turns, takes a millisecond for a small model's state
    from torch.fx.experimental.proxy_tensor import make_fx

    graphs, variables, settings, values_of_settings = {}, (), Settings(model), None

    def for_present_weights():
        nonlocal variables, settings, values_of_settings
        present = _variables(model)
        if not _same(present, variables) or settings() != values_of_settings:  # as after `enable_lora` or `quantize`
            graphs.clear()
            variables, settings = present, Settings(model)
            values_of_settings = settings()
        return functools.partial(replay, [variable.value for variable in variables])

    def replay(values, *args):
        leaves, structure = optree.tree_flatten(args)
        key = structure, *((x.shape, x.dtype, x.device) for x in leaves)
        if key not in graphs:
            graphs[key] = record(values, leaves, structure)
        graph, result_structure = graphs[key]
        return optree.tree_unflatten(result_structure, graph(values, leaves))

    def record(values, leaves, structure):
        result_structure = None

        def of_leaves(values, leaves):
            nonlocal result_structure
            with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
                result = function(*optree.tree_unflatten(structure, leaves))
            result_leaves, result_structure = optree.tree_flatten(result)
            return result_leaves

        module = make_fx(of_leaves)(values, leaves)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module, result_structure

    return for_present_weights


SIMPLE = bool | int | float | str | None | keras.DTypePolicy | types.FunctionType  # types of settings


class Settings:
    """The settings of a model and of the layers in it, which compiled code has as constants."""

    def __init__(self, model):
        layers, visited, self._named = [*getattr(model, "models", (model,))], set(), []
        for layer in layers:  # which grows
            if isinstance(layer, keras.layers.Layer) and id(layer) not in visited:
                visited.add(id(layer))
                attributes = vars(layer)
                for value in attributes.values():
                    layers += value if isinstance(value, list | tuple) else (value,)
                names = [name for name in _argument_names(type(layer)) if _is_setting(attributes.get(name, ()))]
                self._named.append((attributes, names))

    def __call__(self) -> list:
        """Return the values that they have now."""
        return [attributes.get(name) for attributes, names in self._named for name in names]


def _is_setting(value):
    """Return whether a value is one, or a dataclass of such, as `RotaryPositions` are."""
    return isinstance(value, SIMPLE) or dataclasses.is_dataclass(value)


@functools.cache
def _argument_names(kind):
    """Return the names of the attributes that hold a layer's settings, public or with an underscore before."""
    names = {"dtype_policy", "lora_enabled", "lora_alpha"}
    for base in kind.__mro__:
        if issubclass(base, keras.layers.Layer) and base not in (keras.layers.Layer, keras.Model):
            names.update(inspect.signature(base.__init__).parameters)
    names -= {"self", "args", "kwargs", "name", "seed", "trainable"}
    return [*sorted(names), *sorted(f"_{name}" for name in names)]


def _variables(model):
    return getattr(model, "variables", [])


def _weights(model):
    """Return the variables but for those of metrics and seeds, which training adds."""
    return getattr(model, "weights", _variables(model))


def _same(variables, others):
    return len(variables) == len(others) and all(a is b for a, b in zip(variables, others, strict=True))


def _tensor(x):
    return ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x

"""Base class of all layers: what a call gets is checked before Keras converts it, and refused by name."""

import functools
import inspect

import keras
from keras import ops

from keras_seq import checks

SPELLINGS = {  # of arguments in Keras, KerasHub, PyTorch, transformers and tutorials, and here
    **dict.fromkeys(("intermediate_dim", "intermediate_size", "dim_feedforward", "hidden_dim"), "feed_forward_dim"),
    **dict.fromkeys(("ff_dim", "ffn_dim", "mlp_dim", "d_ff", "dff"), "feed_forward_dim"),
    **dict.fromkeys(("num_attention_heads", "num_query_heads", "nhead", "n_head", "n_heads", "heads"), "num_heads"),
    **{"num_kv_heads": "num_key_value_heads", "head_dim": "key_dim", "head_size": "key_dim"},
    **{"hidden_size": "units", "num_units": "units", "dropout_rate": "dropout", "rate": "dropout"},
    **{"is_causal": "causal", "use_causal_mask": "causal"},
}


class CheckedCall(keras.layers.Layer):
    """Base class of layers whose inputs are a dense tensor of real numbers.

    Integers and booleans are real numbers too: `call` converts them by `checks.real`, so that a layer computes of
    integers what it computes of the same numbers as floats.

    Args:
        **kwargs: Those of `keras.layers.Layer`.

    Raises:
        ValueError: In a call, if a tensor is ragged or sparse or holds complex numbers or strings, or the inputs are
            None, no tensor, or of another rank or width than the layer was built for.
    """

    def __new__(cls, *args, **kwargs):
        """Refuse an argument by the name that it has elsewhere, of which Python would say less."""
        for name in SPELLINGS.keys() & kwargs.keys():
            arguments = inspect.signature(cls.__init__).parameters
            if name not in arguments and SPELLINGS[name] in arguments:
                raise ValueError(f"{cls.__name__} has no argument {name}={kwargs[name]!r}; expected {SPELLINGS[name]}.")
        return super().__new__(cls, *args, **kwargs)

    def __call__(self, inputs=None, *args, **kwargs):
        """Apply the layer."""
        if checks.is_torch_compiling():
            return super().__call__(inputs, *args, **kwargs)
        checks.dense("inputs", inputs)
        named = kwargs.items()
        if args:
            named = [*zip(_names_after_the_first(type(self).call), args, strict=False), *named]
        for name, value in named:
            if hasattr(value, "dtype"):
                checks.dense(name, value, "booleans" if name.endswith("mask") else "real numbers")
        if self.built and self.input_spec is not None and hasattr(inputs, "shape"):
            self._check_shape(tuple(inputs.shape))
        return super().__call__(inputs, *args, **kwargs)

    def _check_shape(self, shape):
        rank, axes = self.input_spec.ndim, self.input_spec.axes
        fits_rank = len(shape) == rank if rank else len(shape) >= (self.input_spec.min_ndim or 0)
        if not fits_rank or any(shape[axis] not in (None, size) for axis, size in axes.items()):
            sizes = [f"{size} on axis {axis}" for axis, size in axes.items()]
            expected = f"[B, T, {axes[-1]}]" if rank == 3 else " and ".join(sizes)
            raise ValueError(f"inputs has shape {shape}; expected {expected}, as {self.name} was built for.")

    def add_weight(self, *args, initializer=None, dtype=None, **kwargs):
        """Create a weight, as `keras.layers.Layer.add_weight` does.

        In half precision the initial values are drawn in float32 and rounded, because no backend has the QR
        decomposition that orthogonal matrices are made by in bfloat16.
        """
        half = keras.backend.standardize_dtype(dtype or self.variable_dtype) in ("bfloat16", "float16")
        if half and initializer is not None:
            initializer = functools.partial(_rounded, keras.initializers.get(initializer))
        return super().add_weight(*args, initializer=initializer, dtype=dtype, **kwargs)


@functools.cache
def _names_after_the_first(call):
    return [name for name in inspect.signature(call).parameters if name != "self"][1:]


def _rounded(initializer, shape, dtype):
    return ops.cast(initializer(shape, dtype="float32"), dtype)

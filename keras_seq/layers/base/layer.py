"""The base class of all layers, and the matrices that a layer owns: as they are, in 8 or 4 bits, or with an addition.

    W = W_0                              a variable
    W = Q / s                            Q: int8, or two 4-bit numbers a byte; s: for a column, in int4 of GROUP rows
    W = W_0 + (alpha / r) A B            LoRA (Hu et al., 2021): A [D, r], B [r, W], W_0 is no longer trained

A layer declares `kernel = MatrixAttribute()` in its class; what its code sets as `self.kernel` is owned by a `Matrix`,
which knows the mode and changes it. Only weights are rounded.
"""

import contextlib
import functools
import gc
import inspect
import types

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.configuration import constructor_arguments, output_spec
from keras_seq.ops import tensor_checks
from keras_seq.ops.dispatch import exporting, keras_export, refusal
from keras_seq.ops.tensor_checks import at_least_float32

MODES = ("int8", "int4")
GROUP = 128  # rows that share a scale, in int4


class Matrix:
    """A matrix `[D, W]` of a layer: one variable of the layer or two or three, depending on the mode.

    They are attributes of the layer, for Keras to find: `_kernel`, `kernel_scale`, `kernel_lora_a`, `kernel_lora_b`.
    """

    def __init__(self, layer, name: str, variable):
        self.layer, self.name, self.shape = layer, name, tuple(variable.shape)
        self.mode = None  # or "int8", "int4", "lora"
        self.lora_rank = self.lora_alpha = None
        if vars(layer).get(f"_{name}") is not variable:  # as Keras's `Dense` has set it
            setattr(layer, f"_{name}", variable)

    @property
    def variable(self):
        """Return W_0 or Q."""
        return getattr(self.layer, f"_{self.name}")

    @property
    def lora_variables(self) -> list:
        """Return A and B, if there are any."""
        names = [f"{self.name}_lora_{part}" for part in "ab"] if self.mode == "lora" else []
        return [getattr(self.layer, name) for name in names]

    def value(self):
        """Return W: the variable, or a tensor where it is quantized or has an addition."""
        matrix = self.variable
        if self.mode in MODES:
            matrix = dequantize(matrix, getattr(self.layer, f"{self.name}_scale"), self.shape[0], self.mode)
            return ops.cast(matrix, self.layer.compute_dtype)
        if self.mode == "lora":
            addition = ops.matmul(*self.lora_variables) * (self.lora_alpha / self.lora_rank)
            return matrix + ops.cast(addition, matrix.dtype)
        return matrix

    def enable_lora(self, rank: int, alpha: float, a_initializer, b_initializer) -> None:
        """Add A and B in float32 or wider, which are trained instead of W_0."""
        rows, columns = self.shape
        options = {"dtype": at_least_float32(self.layer.variable_dtype), "regularizer": self.variable.regularizer}
        for part, shape, initializer in (("a", (rows, rank), a_initializer), ("b", (rank, columns), b_initializer)):
            self._add(f"{self.name}_lora_{part}", shape, keras.initializers.get(initializer), **options)
        self.variable.trainable = False
        self.mode, self.lora_rank, self.lora_alpha = "lora", rank, alpha

    def merge_lora(self) -> None:
        """Add A B to W_0, which is trained again, and remove them."""
        self.variable.assign(self.value())
        self.variable.trainable = self.layer.trainable
        for part in "ab":
            delattr(self.layer, f"{self.name}_lora_{part}")
        self.mode = self.lora_rank = self.lora_alpha = None

    def quantize(self, mode: str) -> None:
        """Store W in 8 or 4 bits."""
        stored, scale = quantize(self.variable, mode)
        self.build_quantized(mode)
        self.variable.assign(stored)
        getattr(self.layer, f"{self.name}_scale").assign(scale)

    def build_quantized(self, mode: str) -> None:
        """Replace W_0 by variables for 8 or 4 bits, without their values."""
        rows, columns = self.shape
        delattr(self.layer, f"_{self.name}")
        stored_rows, num_groups = (rows, 1) if mode == "int8" else (-(-rows // 2), -(-rows // GROUP))
        options = {"trainable": False, "autocast": False}
        self._add(f"_{self.name}", (stored_rows, columns), "ones", dtype="int8", **options)
        self._add(f"{self.name}_scale", (num_groups, columns), "ones", dtype="float32", **options)
        self.mode = mode

    def _add(self, attribute, shape, initializer, **options):
        options |= {"shape": shape, "initializer": initializer, "name": attribute.lstrip("_")}
        setattr(self.layer, attribute, self.layer.add_weight(**options))


class MatrixAttribute:
    """Give the value of a `Matrix` as an attribute of its layer, and make one of the variable that is set."""

    def __set_name__(self, owner, name):
        """Remember the attribute's name."""
        self.name = name

    def __set__(self, layer, variable):
        """Make the matrix."""
        if not layer.matrices:
            vars(layer)["matrices"] = {}  # not by an assignment, which Keras would track
        layer.matrices[self.name] = Matrix(layer, self.name, variable)

    def __get__(self, layer, owner=None):
        """Return the value."""
        if layer is None:
            return self
        if self.name not in layer.matrices:
            raise AttributeError(f"{layer.name} has no {self.name} before it is built.")
        return layer.matrices[self.name].value()


def quantize(matrix, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Round a matrix `[D, W]` to 8 or 4 bits.

    In 8 bits Q is `[D, W]` and s `[1, W]`, in 4 bits `[ceil(D / 2), W]` and `[ceil(D / GROUP), W]`.
    """
    matrix = ops.convert_to_numpy(ops.cast(matrix, "float32"))
    limit, group = (127, len(matrix)) if mode == "int8" else (7, GROUP)
    starts = np.arange(0, len(matrix), group)
    largest = np.maximum.reduceat(np.abs(matrix), starts, axis=0)
    scale = limit / np.where(largest > 0, largest, 1)
    rounded = np.round(matrix * np.repeat(scale, group, axis=0)[: len(matrix)]).astype("int8")
    if mode == "int4":
        rounded = ops.convert_to_numpy(keras.quantizers.pack_int4(rounded, axis=0)[0])
    return rounded, scale.astype("float32")


def dequantize(stored, scale, num_rows: int, mode: str):
    """Return the matrix `[D, W]`, float32, of Q and s as `quantize` returns them; D is `num_rows`."""
    if mode == "int4":
        stored = keras.quantizers.unpack_int4(ops.convert_to_tensor(stored), num_rows, axis=0)
    if scale.shape[0] > 1:
        scale = ops.repeat(scale, GROUP, axis=0)[:num_rows]
    return ops.cast(stored, "float32") / ops.cast(scale, "float32")


def freeze_inner_layers(layer) -> None:
    """Freeze the layers inside of a layer that is not trainable; to be called at the end of its `build`.

    Keras does so when `layer.trainable` is set, but not where a layer is created, cloned or loaded with it.
    """
    if not layer.trainable:
        layer.trainable = True  # on TensorFlow, an attribute that is set to what it is is not set
        layer.trainable = False


# `keras.Model.export` to ONNX and LiteRT: layers compute by what files know, and refuse what would be wrong.

RIGHT_IN = {"tensorflow": ("onnx", "litert"), "torch": ("onnx",)}  # formats by backend

SPELLINGS = {  # of arguments in Keras, KerasHub, PyTorch, transformers and tutorials, and here
    **dict.fromkeys(("intermediate_dim", "intermediate_size", "dim_feedforward", "hidden_dim"), "feed_forward_dim"),
    **dict.fromkeys(("ff_dim", "ffn_dim", "mlp_dim", "d_ff", "dff"), "feed_forward_dim"),
    **dict.fromkeys(("num_attention_heads", "num_query_heads", "nhead", "n_head", "n_heads", "heads"), "num_heads"),
    **{"num_kv_heads": "num_key_value_heads", "head_dim": "key_dim", "head_size": "key_dim"},
    **{"hidden_size": "units", "num_units": "units", "dropout_rate": "dropout", "rate": "dropout"},
    **{"is_causal": "causal", "use_causal_mask": "causal"},
}


class Layer(keras.layers.Layer):
    """Base class of layers whose inputs are a dense tensor of real numbers.

    `call` converts integers and booleans by `tensor_checks.real`, and computes of them what it computes of floats. Each
    argument of the constructor is an attribute of the same name, from which the config is made. `enable_lora` and
    `quantize` are those of `keras.layers.Dense`, for all matrices of a layer, but that activations are not rounded.
    """

    supports_masking = True  # masks are passed on
    loops_over_positions = True  # in Python, so that a trace by torch has one length; layers inside say it themselves
    matrices = types.MappingProxyType({})  # the layer's own, by name

    def __new__(cls, *args, **kwargs):
        """Refuse an argument by the name that it has elsewhere."""
        for name in SPELLINGS.keys() & kwargs.keys():
            arguments = inspect.signature(cls.__init__).parameters
            if name not in arguments and SPELLINGS[name] in arguments:
                raise ValueError(f"{cls.__name__} has no argument {name}={kwargs[name]!r}; expected {SPELLINGS[name]}.")
        return super().__new__(cls, *args, **kwargs)

    def __call__(self, inputs=None, *args, **kwargs):
        """Check the inputs before Keras converts them, and apply the layer."""
        if tensor_checks.is_torch_compiling():
            return super().__call__(inputs, *args, **kwargs)
        export = keras_export()
        if export is not None:
            self._check_export(export["format"], export["self"], export["input_signature"], inputs)
        tensor_checks.dense("inputs", inputs)
        named = zip(_names_after_the_first(type(self).call), args, strict=False) if args else ()
        for name, value in (*named, *kwargs.items()):
            if hasattr(value, "dtype"):
                tensor_checks.dense(name, value, "booleans" if name.endswith("mask") else "real numbers")
                tensor_checks.no_constant(self.name, name, value, inputs)
        if self.built and self.input_spec is not None and hasattr(inputs, "shape"):
            self._check_shape(tuple(inputs.shape))
        with contextlib.nullcontext() if export is None else exporting(export["format"]):
            return super().__call__(inputs, *args, **kwargs)

    def _check_export(self, format, model, signature, inputs):
        """Raise unless `keras.Model.export` writes a file of this format that computes what the layer computes."""
        backend, reason = keras.backend.backend(), None
        specs = keras.tree.flatten(signature or getattr(model, "inputs", None) or [])
        # torch traces 1 for what is unknown
        is_known = all(None not in spec.shape[1:] for spec in specs) if specs else inputs.shape[1] != 1
        if format not in RIGHT_IN.get(backend, ()):
            reason = f"on {backend} it would be right for one size only, if at all"
        elif self.compute_dtype != "float32":
            reason = f"it computes in {self.compute_dtype}, and runtimes in float32"
        elif self.matrix_mode in MODES:
            reason = f"its matrices are in {self.matrix_mode}"
        elif backend == "torch" and self.loops_over_positions and not is_known:
            reason = "torch traces one number of positions, and that of the model is unknown"
        if reason is not None:
            raise refusal(f"{self.name} ({type(self).__name__})", format, reason)

    def _check_shape(self, shape):
        rank, axes = self.input_spec.ndim, self.input_spec.axes
        fits_rank = len(shape) == rank if rank else len(shape) >= (self.input_spec.min_ndim or 0)
        if not fits_rank or any(shape[axis] not in (None, size) for axis, size in axes.items()):
            sizes = [f"{size} on axis {axis}" for axis, size in axes.items()]
            expected = f"[B, T, {axes[-1]}]" if rank == 3 else " and ".join(sizes)
            raise ValueError(f"inputs has shape {shape}; expected {expected}, as {self.name} was built for.")

    @property
    def state_dtype(self) -> str:
        """Return the dtype of sums over positions: float32, or float64 under that dtype policy."""
        return at_least_float32(self.compute_dtype)

    def _to_state_dtype(self, v):
        return ops.cast(v, self.state_dtype)

    def _read_width(self, inputs_shape):
        """Return D of `[B, T, D]`, which all inputs are to have from now on."""
        width = tensor_checks.sequence_shape("inputs", inputs_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        return width

    def _valid_inputs(self, inputs, mask):
        """Return `[B, T, ...]` in the compute dtype, zeros where the mask is false, and a boolean mask or None."""
        x = ops.cast(tensor_checks.real("inputs", inputs, self.compute_dtype), self.compute_dtype)
        x, mask = tensor_checks.masked("mask", x, mask)
        return tensor_checks.where_valid(mask, x), mask

    def add_weight(self, *args, initializer=None, dtype=None, **kwargs):
        """Create a weight, as `keras.layers.Layer.add_weight` does, that knows the class of its layer."""
        # Half precision is drawn in float32 and rounded: no backend has the QR of orthogonal matrices in bfloat16.
        half = keras.backend.standardize_dtype(dtype or self.variable_dtype) in ("bfloat16", "float16")
        if half and initializer is not None:
            initializer = functools.partial(_rounded, keras.initializers.get(initializer))
        kwargs.setdefault("autocast", self.autocast)  # else Keras rounds it where the layer is called by itself
        weight = super().add_weight(*args, initializer=initializer, dtype=dtype, **kwargs)
        weight.layer_class = type(self)
        return weight

    def compute_output_spec(self, *args, **kwargs):
        """Return the shapes and dtypes of `call`, including the optional outputs."""
        return output_spec(self, *args, **kwargs)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), **constructor_arguments(self, Layer)}

    def get_build_config(self):
        """Return the shapes that the layer was built for and, where one is quantized, the modes of its matrices."""
        modes = [mode if (mode := layer.matrix_mode) in MODES else None for layer in self._layers_with_matrices()]
        config = super().get_build_config()
        return {**config, "matrix_modes": modes} if any(modes) else config

    def build_from_config(self, config):
        """Create the weights, for 8 or 4 bits where the config says so."""
        super().build_from_config(config)
        modes = (config or {}).get("matrix_modes")
        for layer, mode in zip(self._layers_with_matrices(), modes, strict=True) if modes else ():
            if mode is not None and layer.matrix_mode is None:
                layer.build_quantized(mode)

    def _layers_with_matrices(self):
        layers, waiting = [], [self]
        while waiting:  # in the order of Keras, which files have
            layer = waiting.pop()
            if layer not in layers:
                layers.append(layer)
                inner = layers_in(vars(layer).values())
                waiting += inner[::-1] if layer is self else inner
        return [layer for layer in layers if getattr(layer, "matrices", None)]

    @property
    def matrix_mode(self) -> str | None:
        """Return how the layer's own matrices are stored: None as they are, or "int8", "int4", "lora"."""
        return next((matrix.mode for matrix in self.matrices.values()), None)

    def enable_lora(
        self, rank: int, lora_alpha: float | None = None, a_initializer="he_uniform", b_initializer="zeros"
    ) -> None:
        """Train a low-rank addition to each matrix instead of the matrix; the layer computes the same at first."""
        checks.positive_integer("rank", rank)
        if not self.matrices:
            raise ValueError(f"{self.name} is not built, or has no matrix; expected a built layer with one.")
        if self.matrix_mode is not None:
            problem = "has LoRA already" if self.matrix_mode == "lora" else "is quantized"
            raise ValueError(f"{self.name} {problem}; expected to enable it once, on a built layer.")
        if constrained := [name for name, matrix in self.matrices.items() if matrix.variable.constraint is not None]:
            raise ValueError(f"{self.name} has a constraint of its {constrained[0]}; expected none with LoRA.")
        alpha = rank if lora_alpha is None else lora_alpha
        self._change_matrices(lambda matrix: matrix.enable_lora(rank, alpha, a_initializer, b_initializer))

    def merge_lora(self) -> None:
        """Add the low-rank additions to the matrices, which are trained again, and remove them."""
        self._change_matrices(lambda matrix: matrix.merge_lora())

    def quantize(self, mode: str, type_check: bool = True, config=None) -> None:
        """Store the matrices in 8 or 4 bits."""
        if not self.matrices:
            super().quantize(mode, type_check, config)
        if self.matrix_mode == "lora":
            raise ValueError(f"{self.name} has LoRA; expected to merge it before quantization.")
        self._check_unquantized(mode)
        self._change_matrices(lambda matrix: matrix.quantize(mode))

    def build_quantized(self, mode: str) -> None:
        """Replace the matrices by variables for 8 or 4 bits, without their values."""
        self._check_unquantized(mode)
        self._change_matrices(lambda matrix: matrix.build_quantized(mode))

    def _check_unquantized(self, mode):
        checks.one_of("mode", mode, MODES)
        if self.matrix_mode is not None:
            raise ValueError(f"{self.name} is quantized already, in {self.matrix_mode}.")

    def _change_matrices(self, change):
        self._tracker.unlock()  # Keras lets no variable be added to a built layer
        if not (frozen := gc.get_freeze_count()):  # what somebody has frozen stays so
            gc.freeze()  # Keras collects garbage where a variable is deleted: of all objects, for a tenth of a second
        try:
            for matrix in self.matrices.values():
                change(matrix)
        finally:
            if not frozen:
                gc.unfreeze()
            self._tracker.lock()

    def save_own_variables(self, store):
        """Write the variables, with additions merged into their matrices, as Keras's `Dense` does."""
        merged = {id(m.variable): m.value() for m in self.matrices.values() if m.mode == "lora"}
        for n, variable in enumerate(self._saved_variables()):
            store[str(n)] = merged.get(id(variable), variable)

    def load_own_variables(self, store):
        """Read the variables; additions, which a file holds merged into their matrices, become zero."""
        if self.matrix_mode != "lora":
            keras.layers.Layer.load_own_variables(self, store)  # not that of Keras's `Dense`
            return
        variables = self._saved_variables()
        if len(store.keys()) != len(variables):
            raise ValueError(f"{self.name}: the file has {len(store.keys())} variables; expected {len(variables)}.")
        for n, variable in enumerate(variables):
            variable.assign(store[str(n)])
        for matrix in self.matrices.values():
            matrix.lora_variables[1].assign(ops.zeros_like(matrix.lora_variables[1]))

    def _saved_variables(self):
        added = {id(v) for matrix in self.matrices.values() for v in matrix.lora_variables}
        variables = {}
        keras.layers.Layer.save_own_variables(self, variables)  # in the order of Keras
        return [v for v in variables.values() if id(v) not in added]


@functools.cache
def _names_after_the_first(call):
    return [name for name in inspect.signature(call).parameters if name != "self"][1:]


def _rounded(initializer, shape, dtype):
    return ops.cast(initializer(shape, dtype="float32"), dtype)


def layers_in(values) -> list:
    """Return the layers among values, and in the lists among these."""
    lists = (value if isinstance(value, list | tuple) else (value,) for value in values)
    return [layer for layers in lists for layer in layers if isinstance(layer, keras.layers.Layer)]


def same_shape(layer, inputs_shape, *other_shapes, **named_shapes) -> tuple:
    """Return the shape of the inputs, `[B, T, D]`; a layer that keeps it sets `compute_output_shape = same_shape`."""
    return tuple(inputs_shape)

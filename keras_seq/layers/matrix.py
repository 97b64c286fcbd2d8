"""Matrices of layers: trained as they are, stored in 8 or 4 bits, or with a low-rank addition.

    W = W_0                              a variable
    W = Q / s                            Q: int8, or two 4-bit numbers a byte; s: for each column, in int4 for each
                                         group of GROUP rows too
    W = W_0 + (alpha / r) A B            LoRA (Hu et al., 2021): A [D, r], B [r, W], W_0 is no longer trained

A layer declares `kernel = Matrix()` in its class and derives from `HasMatrices`; its code reads and sets `self.kernel`.
`enable_lora` and `quantize` are those of `keras.layers.Dense`, but that only weights are rounded, and not activations.
"""

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.layers.checked_call import CheckedCall
from keras_seq.layers.onnx_refusal import refuse_onnx_export

MODES = ("int8", "int4")
GROUP = 128  # rows that share a scale, in int4


class Matrix:
    """A matrix `[D, W]` as an attribute of a layer, which gives a tensor where it is quantized or has an addition."""

    def __set_name__(self, owner, name):
        """Remember the attribute's name."""
        self.name = name

    def __set__(self, layer, variable):
        """Keep the variable; Keras tracks it."""
        setattr(layer, f"_{self.name}", variable)

    def __get__(self, layer, owner=None):
        """Return the matrix."""
        if layer is None:
            return self
        matrix = getattr(layer, f"_{self.name}")
        if layer.matrix_mode is not None:
            scale = getattr(layer, f"{self.name}_scale")
            matrix = dequantize(matrix, scale, layer.matrix_rows[self.name], layer.matrix_mode)
            matrix = ops.cast(matrix, layer.compute_dtype)
        if layer.lora_enabled:
            a, b = (getattr(layer, f"{self.name}_lora_{part}") for part in "ab")
            matrix = matrix + ops.cast(ops.matmul(a, b) * (layer.lora_alpha / layer.lora_rank), matrix.dtype)
        return matrix


def quantize(matrix, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Round a matrix to 8 or 4 bits.

    Args:
        matrix: `[D, W]`.
        mode: `"int8"` or `"int4"`.

    Returns:
        `(Q, s)`: int8 `[D, W]` and float32 `[1, W]`, or int8 `[ceil(D / 2), W]` and float32 `[ceil(D / GROUP), W]`.
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
    """Return the matrix `[D, W]`, float32.

    Args:
        stored: Q as `quantize` returns it.
        scale: s as `quantize` returns it.
        num_rows: D.
        mode: `"int8"` or `"int4"`.
    """
    if mode == "int4":
        stored = keras.quantizers.unpack_int4(ops.convert_to_tensor(stored), num_rows, axis=0)
    if scale.shape[0] > 1:
        scale = ops.repeat(scale, GROUP, axis=0)[:num_rows]
    return ops.cast(stored, "float32") / ops.cast(scale, "float32")


class KeepsMatrixModes(CheckedCall):
    """Base class of layers with matrices, and of layers of such layers: a file tells how each matrix is stored.

    A layer's config does not name the layers that it creates, but each has to be built for 8 or 4 bits before its
    values can be read.

    Args:
        **kwargs: Those of `keras.layers.Layer`.
    """

    exports_to_onnx = False  # whether `Model.export(format="onnx")` writes what the layer computes

    def __call__(self, *args, **kwargs):
        """Apply the layer."""
        if not self.exports_to_onnx:
            refuse_onnx_export(self)
        return super().__call__(*args, **kwargs)

    def get_build_config(self):
        """Return the shapes that the layer was built for and, where one is quantized, the modes of its matrices."""
        modes = [layer.matrix_mode for layer in self._layers_with_matrices()]
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
        return [layer for layer in self._flatten_layers() if isinstance(layer, HasMatrices)]


class HasMatrices(KeepsMatrixModes):
    """Base class of layers with a `Matrix`.

    Args:
        **kwargs: Those of `keras.layers.Layer`.
    """

    matrix_mode = None  # None, "int8" or "int4"
    lora_enabled, lora_rank, lora_alpha = False, None, None

    @classmethod
    def matrix_names(cls) -> list[str]:
        """Return the names of the matrices, in the order of their definition."""
        parts = [part for base in reversed(cls.__mro__) for part in vars(base).items()]
        return [name for name, value in parts if isinstance(value, Matrix)]

    def enable_lora(
        self, rank: int, lora_alpha: float | None = None, a_initializer="he_uniform", b_initializer="zeros"
    ) -> None:
        """Train a low-rank addition to each matrix instead of the matrix; the layer computes the same at first.

        Args:
            rank: r.
            lora_alpha: alpha; r unless given.
            a_initializer: Initializer of A.
            b_initializer: Initializer of B.

        Raises:
            ValueError: The rank is not a positive integer, the layer is not built, is quantized, or has an addition.
        """
        checks.positive_integer("rank", rank)
        if not self.built or self.lora_enabled or self.matrix_mode is not None:
            problem = "is not built" if not self.built else "has LoRA already" if self.lora_enabled else "is quantized"
            raise ValueError(f"{self.name} {problem}; expected to enable it once, on a built layer.")
        self._tracker.unlock()
        for name in self.matrix_names():
            rows, columns = getattr(self, name).shape
            shapes = {"a": ((rows, rank), a_initializer), "b": ((rank, columns), b_initializer)}
            for part, (shape, initializer) in shapes.items():
                initializer = keras.initializers.get(initializer)
                addition = self.add_weight(shape=shape, initializer=initializer, name=f"{name}_lora_{part}")
                addition.muon_blocks = 0
                setattr(self, f"{name}_lora_{part}", addition)
            getattr(self, f"_{name}").trainable = False
        self._tracker.lock()
        self.lora_rank, self.lora_alpha, self.lora_enabled = rank, rank if lora_alpha is None else lora_alpha, True

    def quantize(self, mode: str, type_check: bool = True, config=None) -> None:
        """Store the matrices in 8 or 4 bits.

        Args:
            mode: `"int8"` or `"int4"`.
            type_check: Not used; Keras passes it.
            config: Not used; Keras passes it.

        Raises:
            ValueError: The mode is another one, or the layer is quantized already or has LoRA.
        """
        if self.lora_enabled:
            raise ValueError(f"{self.name} has LoRA; expected to merge it before quantization.")
        values = {name: quantize(getattr(self, name), mode) for name in self.matrix_names()}
        self.build_quantized(mode)
        for name, (stored, scale) in values.items():
            getattr(self, f"_{name}").assign(stored)
            getattr(self, f"{name}_scale").assign(scale)

    def build_quantized(self, mode: str) -> None:
        """Replace the matrices by variables for 8 or 4 bits, without their values.

        Args:
            mode: `"int8"` or `"int4"`.

        Raises:
            ValueError: The mode is another one, or the layer is quantized already.
        """
        checks.one_of("mode", mode, MODES)
        if self.matrix_mode is not None:
            raise ValueError(f"{self.name} is quantized already, in {self.matrix_mode}.")
        self._tracker.unlock()
        self.matrix_rows = {}
        for name in self.matrix_names():
            matrix = getattr(self, f"_{name}")
            rows, columns = matrix.shape
            self.matrix_rows[name] = rows
            self._untrack_variable(matrix)  # Keras's `del` collects garbage each time
            stored_rows, num_groups = (rows, 1) if mode == "int8" else (-(-rows // 2), -(-rows // GROUP))
            shapes = {f"_{name}": (stored_rows, columns), f"{name}_scale": (num_groups, columns)}
            for attribute, shape in shapes.items():
                dtype = "int8" if attribute.startswith("_") else "float32"
                options = {"dtype": dtype, "trainable": False, "autocast": False}
                weight = self.add_weight(shape=shape, initializer="ones", name=attribute.lstrip("_"), **options)
                setattr(self, attribute, weight)
        self._tracker.lock()
        self.matrix_mode = mode

    def save_own_variables(self, store):
        """Write the variables, with additions merged into their matrices, as Keras's `Dense` does."""
        names = self.matrix_names() if self.lora_enabled else ()
        merged = {id(getattr(self, f"_{name}")): getattr(self, name) for name in names}
        for n, variable in enumerate(self._saved_variables()):
            store[str(n)] = merged.get(id(variable), variable)

    def load_own_variables(self, store):
        """Read the variables; additions, which a file holds merged into their matrices, become zero."""
        if not self.lora_enabled:
            keras.layers.Layer.load_own_variables(self, store)  # not that of Keras's `Dense`
            return
        variables = self._saved_variables()
        if len(store.keys()) != len(variables):
            raise ValueError(f"{self.name}: the file has {len(store.keys())} variables; expected {len(variables)}.")
        for n, variable in enumerate(variables):
            variable.assign(store[str(n)])
        for name in self.matrix_names():
            addition = getattr(self, f"{name}_lora_b")
            addition.assign(ops.zeros(addition.shape, addition.dtype))

    def _saved_variables(self):
        names = self.matrix_names() if self.lora_enabled else ()
        parts = {id(getattr(self, f"{name}_lora_{part}")) for name in names for part in "ab"}
        return [v for v in self._trainable_variables + self._non_trainable_variables if id(v) not in parts]

    def merge_lora(self) -> None:
        """Add the low-rank additions to the matrices, which are trained again, and remove them."""
        self._tracker.unlock()
        for name in self.matrix_names():
            matrix = getattr(self, f"_{name}")
            matrix.assign(getattr(self, name))
            matrix.trainable = self.trainable
            for part in "ab":
                delattr(self, f"{name}_lora_{part}")
        self._tracker.lock()
        self.lora_enabled, self.lora_rank, self.lora_alpha = False, None, None

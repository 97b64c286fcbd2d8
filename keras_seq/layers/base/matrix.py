"""Matrices of layers: trained as they are, stored in 8 or 4 bits, or with a low-rank addition.

    W = W_0                              a variable
    W = Q / s                            Q: int8, or two 4-bit numbers a byte; s: for each column, in int4 for each
                                         group of GROUP rows too
    W = W_0 + (alpha / r) A B            LoRA (Hu et al., 2021): A [D, r], B [r, W], W_0 is no longer trained

A layer declares `kernel = MatrixAttribute()` in its class; its code reads and sets `self.kernel`. What it sets is owned
by a `Matrix`, which knows the mode and changes it. Only weights are rounded, and not activations.
"""

import keras
import numpy as np
from keras import ops

MODES = ("int8", "int4")
GROUP = 128  # rows that share a scale, in int4


class Matrix:
    """A matrix `[D, W]` of a layer: one variable of the layer or two or three, depending on the mode.

    The variables are attributes of the layer, so that Keras finds them: `_kernel`, and `kernel_scale` or
    `kernel_lora_a` and `kernel_lora_b`.
    """

    def __init__(self, layer, name: str, variable):
        self.layer, self.name, self.shape = layer, name, tuple(variable.shape)
        self.mode = None  # or "int8", "int4", "lora"
        self.lora_rank = self.lora_alpha = None
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
        """Add A and B, which are trained instead of W_0."""
        rows, columns = self.shape
        for part, shape, initializer in (("a", (rows, rank), a_initializer), ("b", (rank, columns), b_initializer)):
            self._add(f"{self.name}_lora_{part}", shape, keras.initializers.get(initializer))
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
        self.layer._untrack_variable(self.variable)  # Keras's `del` collects garbage each time
        stored_rows, num_groups = (rows, 1) if mode == "int8" else (-(-rows // 2), -(-rows // GROUP))
        options = {"trainable": False, "autocast": False}
        self._add(f"_{self.name}", (stored_rows, columns), "ones", dtype="int8", **options)
        self._add(f"{self.name}_scale", (num_groups, columns), "ones", dtype="float32", **options)
        self.mode = mode

    def _add(self, attribute, shape, initializer, **options):
        name = attribute.lstrip("_")
        setattr(
            self.layer, attribute, self.layer.add_weight(shape=shape, initializer=initializer, name=name, **options)
        )


class MatrixAttribute:
    """Give the value of a `Matrix` as an attribute of its layer, and make one of the variable that is set."""

    def __set_name__(self, owner, name):
        """Remember the attribute's name."""
        self.name = name

    def __set__(self, layer, variable):
        """Make the matrix."""
        if not layer.matrices:
            layer.matrices = {}
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

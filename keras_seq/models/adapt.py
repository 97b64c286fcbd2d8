"""Adapt a model: train few of its weights, or low-rank additions to its matrices, or store these in 8 or 4 bits.

    W = W_0 + (alpha / r) A B      LoRA (Hu et al., 2021): A [D, r], B [r, W], B = 0 at first, W_0 is not trained

Every layer with matrices has `enable_lora` (`layers/base/layer.py`). A saved model holds the sums; adapters, the A and
B and the weights of `modules_to_save` (a name of peft), have a file of their own, which another copy can load.

    int8    W[:, j] = Q[:, j] / s_j            one scale a column; a quarter of the bytes of float32
    int4    W[g, j] = Q[g, j] / s_gj           a scale for each group of rows g too; an eighth and the scales

Weights only are quantized: activations keep their precision. Matrices are those of `layers/base/layer.py` and, by
Keras's own `quantize`, embeddings. Inner layers are not named in a model's config, so the model writes down its mode,
and builds them again for 8 or 4 bits when it is loaded.
"""

import dataclasses
import fnmatch
import os

import keras
import numpy as np
from keras import ops
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_seq import checks
from keras_seq.files import atomic_write, check_regular
from keras_seq.layers.base.layer import GROUP, MODES
from keras_seq.layers.introspection import named_layers, named_weights
from keras_seq.ops.dispatch import keras_export, refusal

ADAPTER_PARTS = ("_lora_a", "_lora_b")  # ends of the paths of A and B


class AdapterError(ValueError):
    """Report a file of adapters that does not fit a model."""


def set_trainable(model: keras.Model, patterns: list[str] | tuple[str, ...]) -> int:
    """Train the weights whose path matches one of the patterns, and no others."""
    chosen = _matching(named_weights(model), patterns)
    for path, weight in named_weights(model).items():
        weight.trainable = path in chosen
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


def enable_lora(
    model: keras.Model,
    rank: int,
    lora_alpha: float | None = None,
    patterns: list[str] | tuple[str, ...] = ("*",),
    modules_to_save: list[str] | tuple[str, ...] = (),
) -> int:
    """Train low-rank additions to the matrices of a model, and nothing else; it computes the same at first."""
    checks.positive_integer("rank", rank)
    if lora_alpha is not None:
        checks.positive_number("lora_alpha", lora_alpha)
    layers = {}
    for path, layer in _layers(model):
        if path in patterns or (path != "head" and any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)):
            layers[path] = layer
    if not layers:
        known = ", ".join(path for path, _ in _layers(model)) or "none"
        raise ValueError(f"{', '.join(patterns)} matches no layer with a matrix; expected a pattern of {known}.")
    for path, layer in layers.items():
        if layer.matrix_mode is not None:
            state = "has LoRA already" if layer.matrix_mode == "lora" else "is quantized"
            raise ValueError(f"{path} {state}; expected a model with its matrices as they were trained.")
    saved = _matching(named_weights(model), modules_to_save)
    matrices = {id(matrix.variable) for layer in layers.values() for matrix in layer.matrices.values()}
    for path in (path for path, weight in saved.items() if id(weight) in matrices):
        raise ValueError(f"{path} is in modules_to_save and gets an addition; expected one of the two.")
    for weight in named_weights(model).values():
        weight.trainable = False
    for layer in layers.values():
        layer.enable_lora(rank, lora_alpha)
    for weight in saved.values():
        weight.trainable = True
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


def merge_lora(model: keras.Model) -> None:
    """Add the low-rank additions to their matrices and remove them; all weights of the model are trainable again."""
    for _, layer in _layers(model, "lora"):
        layer.merge_lora()
    for weight in named_weights(model).values():
        weight.trainable = True


def save_adapters(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Write the additions of a model and the weights trained beside them, and nothing else, to a safetensors file."""
    matrices = [matrix for _, layer in _layers(model, "lora") for matrix in layer.matrices.values()]
    if not matrices:
        raise ValueError(f"{model.name} has no adapters; expected a model after enable_lora.")
    metadata = {"lora_rank": str(matrices[0].lora_rank), "lora_alpha": str(matrices[0].lora_alpha)}
    beside = {key: w for key, w in named_weights(model).items() if w.trainable and not is_adapter(w)}
    arrays = {key: ops.convert_to_numpy(weight) for key, weight in {**_adapters(model), **beside}.items()}
    with atomic_write(path) as temporary:
        save_file(arrays, temporary, metadata={"format": "keras_seq", **metadata})


def load_adapters(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Add the adapters of a file to a model, as `enable_lora` does; its other weights are no longer trained."""
    try:
        check_regular(path)
        with safe_open(path, framework="np") as file:
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        rank, alpha = int(metadata["lora_rank"]), float(metadata["lora_alpha"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise AdapterError(f"{path} is not a file of adapters: {str(error).rstrip('.')}.") from None
    layers = {path: layer for path, layer in _layers(model)}
    weights = named_weights(model)
    modules_to_save = sorted(arrays.keys() & weights.keys())
    names = {key.rpartition("/")[0] for key in arrays.keys() - weights.keys()}
    for name in sorted(names - layers.keys()):
        raise AdapterError(f"{path} has adapters of {name}; expected those of {', '.join(layers)}.")
    shapes = {key: weights[key].shape for key in modules_to_save}
    for name in names:
        shapes |= _shapes(name, layers[name], rank)
    for key, shape in shapes.items():
        if key not in arrays or arrays[key].shape != shape or arrays[key].dtype != np.float32:
            actual = f"{arrays[key].dtype} {list(arrays[key].shape)}" if key in arrays else "nothing"
            raise AdapterError(f"{path} holds {actual} as {key}; expected float32 {list(shape)}.")
    enable_lora(model, rank, alpha, sorted(names), modules_to_save)
    for key, weight in {**_adapters(model), **{key: weights[key] for key in modules_to_save}}.items():
        weight.assign(arrays[key])


def merged_values(model: keras.Model) -> dict[int, np.ndarray]:
    """Return the sums of matrices and additions, by the `id` of the matrix's variable."""
    matrices = [matrix for _, layer in _layers(model, "lora") for matrix in layer.matrices.values()]
    return {id(matrix.variable): ops.convert_to_numpy(matrix.value()) for matrix in matrices}


def is_adapter(weight: keras.Variable) -> bool:
    """Return whether a weight is the A or the B of an addition."""
    return weight.path.endswith(ADAPTER_PARTS)


def _matching(weights, patterns):
    """Return the named weights that match a pattern; each pattern has to match one."""
    for pattern in patterns:
        if not fnmatch.filter(weights, pattern):
            example = next(iter(weights))
            raise ValueError(f"{pattern!r} matches no weight; expected a pattern of paths such as {example}.")
    return {path: w for path, w in weights.items() if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)}


def _layers(model, mode=None):
    """Return the layers that can have additions, or those with matrices in a mode, with their paths."""
    layers = [(path, layer) for path, layer in named_layers(model, attributes=True) if getattr(layer, "matrices", None)]
    return [(path, layer) for path, layer in layers if mode in (None, layer.matrix_mode)]


def _adapters(model):
    return {
        f"{path}/{variable.name}": variable
        for path, layer in _layers(model, "lora")
        for matrix in layer.matrices.values()
        for variable in matrix.lora_variables
    }


def _shapes(path, layer, rank):
    shapes = {}
    for name, matrix in layer.matrices.items():
        rows, columns = matrix.shape
        shapes |= {f"{path}/{name}_lora_a": (rows, rank), f"{path}/{name}_lora_b": (rank, columns)}
    return shapes


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """List the matrices of a model and how each is stored."""

    rows: tuple[tuple[str, tuple[int, ...], str], ...]
    """Path of the variable, shape of the matrix, and `"int8"`, `"int4"` or the reason why it is not quantized."""

    @property
    def skipped(self) -> list[str]:
        """Return the paths of the matrices that are not quantized."""
        return [path for path, _, stored in self.rows if stored not in MODES]

    def __str__(self) -> str:
        """Return a table, one line a matrix."""
        width = max((len(path) for path, *_ in self.rows), default=0)
        return "\n".join(f"{path:{width}}  {'x'.join(map(str, shape)):>12}  {how}" for path, shape, how in self.rows)


def weight_only(mode: str):
    """Return Keras's configuration of a mode that rounds weights and no activations."""
    if mode == "int8":
        return keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    return keras.quantizers.Int4QuantizationConfig(activation_quantizer=None, block_size=GROUP)


class NoKerasExport:
    """Part of a Keras model of token ids; to be listed before its other base class."""

    def __call__(self, *args, **kwargs):
        """Apply the model, also inside of another one, but not for its export."""
        if (arguments := keras_export()) is not None:
            raise refusal(self.name, arguments["format"], "it is a model of token ids")
        return super().__call__(*args, **kwargs)

    def export(self, filepath, format: str = "tf_saved_model", *args, **kwargs) -> None:
        """Export the model, as `keras.Model.export`, to any of its formats but `"onnx"` and `"litert"`."""
        if format in ("onnx", "litert"):
            raise refusal(self.name, format, "it is a model of token ids")
        super().export(filepath, format, *args, **kwargs)


class Quantizable(NoKerasExport):
    """Part of a Keras model that can be quantized, saved and loaded again; to be listed before its other base class."""

    quantization = None  # None, "int8" or "int4"

    def quantize(self, mode: str = "int8", config=None, filters=None) -> None:
        """Store every matrix in 8 or 4 bits; `quantization_report` lists them."""
        checks.one_of("mode", mode, MODES)
        if filters is not None:
            raise ValueError(f"filters={filters!r}; expected None: every matrix is quantized.")
        if self.quantization is not None:
            raise ValueError(f"{self.name} is quantized already, in {self.quantization}.")
        layers = [layer for _, layer in named_layers(self, attributes=True) if _is_quantizable(layer)]
        for layer in layers:
            if getattr(layer, "matrix_mode", None) == "lora":
                raise ValueError(f"{layer.name} has LoRA; expected to merge it before quantization.")
        for layer in layers:
            layer.quantize(mode, config=None if _matrices(layer) else weight_only(mode))
        self.quantization = mode
        self.train_function = self.test_function = self.predict_function = None  # traced for floats

    def build_quantized(self) -> None:
        """Replace the matrices of a new model by variables for 8 or 4 bits, where its config says so."""
        if self.quantization is None:
            return
        for _, layer in named_layers(self, attributes=True):
            if _matrices(layer) and layer.matrix_mode is None:
                layer.build_quantized(self.quantization)

    def get_config(self):
        """Return the config of the base class and the mode."""
        config = super().get_config()
        return config if self.quantization is None else {**config, "quantization": self.quantization}


def _is_quantizable(layer):
    return bool(_matrices(layer)) or isinstance(layer, keras.layers.Dense | keras.layers.Embedding)


def _matrices(layer):
    """Return the matrices of a layer of this package by name; none of others."""
    return getattr(layer, "matrices", {})


def quantization_report(model) -> QuantizationReport:
    """Return how each matrix of a model is stored.

    Args:
        model: A built Keras model.
    """
    rows, visited = [], set()
    for path, layer in named_layers(model, attributes=True):
        for name, variable in vars(layer).items():
            if isinstance(variable, keras.Variable) and len(variable.shape) > 1 and id(variable) not in visited:
                visited.add(id(variable))
                name = name.lstrip("_")
                if not name.endswith(("_scale", "_zero")):
                    rows.append((f"{path}/{name}", _shape(layer, name, variable), _how(layer, name, variable)))
    return QuantizationReport(tuple(rows))


def _shape(layer, name, variable):
    """Return the shape that a matrix has when it is multiplied; 4-bit numbers are stored two a byte."""
    if isinstance(layer, keras.layers.Embedding):
        return layer.input_dim, layer.output_dim
    return _matrices(layer)[name].shape if name in _matrices(layer) else tuple(variable.shape)


def _how(layer, name, variable):
    if variable.dtype == "int8":
        return getattr(layer, "matrix_mode", None) or layer.quantization_mode
    matrices = _matrices(layer) or ("embeddings", "kernel")
    return "not quantized" if _is_quantizable(layer) and name in matrices else "no factor of a matrix product"

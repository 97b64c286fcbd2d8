"""Quantize a model: store its matrices in 8 or 4 bits, and say which were covered.

    int8    W[:, j] = Q[:, j] / s_j            one scale a column; a quarter of the bytes of float32
    int4    W[g, j] = Q[g, j] / s_gj           a scale for each group of rows g too; an eighth and the scales

Weights only: activations keep their precision. Matrices are those of `layers/base/layer.py` and, by Keras's own
`quantize`, embeddings. Inner layers are not named in a model's config, so the model writes down its mode, and
builds them again for 8 or 4 bits when it is loaded.
"""

import dataclasses

import keras

from keras_seq import checks
from keras_seq.layers.base.configuration import deserialized
from keras_seq.layers.base.layer import GROUP, MODES
from keras_seq.layers.introspection import named_layers
from keras_seq.ops.dispatch import keras_export, refusal


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


KERAS_LAYERS = (keras.layers.Dense, keras.layers.Embedding, keras.layers.ReversibleEmbedding)


class NoKerasExport:
    """Part of a Keras model of token ids; to be listed before its other base class."""

    def __call__(self, *args, **kwargs):
        """Apply the model, also inside of another one, but not for its export."""
        arguments = keras_export()  # on a line of its own: AutoGraph warns of what it cannot read
        if arguments is not None:
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
    layer_arguments = ()  # names of the constructor's arguments that are layers, or lists of them

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Create the model and its layers from a config."""
        config = deserialized(config, *cls.layer_arguments)
        quantization = config.pop("quantization", None)
        model = super().from_config(config, custom_objects=custom_objects)
        model.quantization = quantization  # `build` reads it
        model.build_quantized()
        return model

    def quantize(self, mode: str = "int8", config=None, filters=None) -> None:
        """Store every matrix in 8 or 4 bits; `quantization_report` lists them."""
        checks.one_of("mode", mode, MODES)
        if filters is not None:
            raise ValueError(f"filters={filters!r}; expected None: every matrix is quantized.")
        if self.quantization is not None:
            raise ValueError(f"{self.name} is quantized already, in {self.quantization}.")
        layers = [layer for _, layer in named_layers(self, attributes=True) if _is_quantizable(layer)]
        for layer in layers:
            if not layer.built:
                raise ValueError(f"{layer.name} is not built; expected a model that was called or built.")
            if getattr(layer, "matrix_mode", None) == "lora":
                raise ValueError(f"{layer.name} has LoRA; expected to merge it before quantization.")
            if not _matrices(layer) and type(layer) not in KERAS_LAYERS:
                kind = type(layer).__name__
                raise ValueError(f"{layer.name} is a {kind}: Keras quantizes Dense and embeddings, and no subclass.")
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

    def get_compile_config(self):
        """Return how the model was compiled; None with LoRA: a file holds merged matrices, and no moments of them."""
        layers = [layer for _, layer in named_layers(self, attributes=True)]
        has_lora = any(getattr(layer, "matrix_mode", None) == "lora" for layer in layers)
        return None if has_lora else super().get_compile_config()

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

"""Fine-tune few weights of a model: those whose names match a pattern, or low-rank additions to its matrices.

    W = W_0 + (alpha / r) A B      LoRA (Hu et al., 2021): A [D, r], B [r, W], B = 0 at first, W_0 is not trained

Every layer with matrices has `enable_lora` (`layers/base/layer.py`). A saved model holds the sums; adapters, the A and
B and the weights of `modules_to_save` (a name of peft), have a file of their own, which another copy can load.
"""

import fnmatch
import os

import keras
import numpy as np
from keras import ops
from safetensors import SafetensorError, safe_open

from keras_seq import checks
from keras_seq.files import atomic_write, check_regular, write_tensors
from keras_seq.layers.introspection import named_layers, named_weights

ADAPTER_PARTS = ("_lora_a", "_lora_b")  # ends of the paths of A and B
SAVED_DTYPES = ("float32", "float64")


class AdapterError(ValueError):
    """Report a file of adapters that does not fit a model."""


def set_trainable(model: keras.Model, patterns: list[str] | tuple[str, ...]) -> int:
    """Train the weights whose path matches one of the patterns, and no others.

    What was not trainable before, such as a moving mean, stays so.
    """
    _check_patterns("patterns", patterns)
    weights = named_weights(model)
    chosen = _matching(weights, patterns)
    before = [(w, w.trainable, getattr(w, "was_trainable", False)) for w in weights.values()]
    for path, weight in weights.items():
        was_trainable = weight.trainable or getattr(weight, "was_trainable", False)
        weight.trainable = was_trainable and path in chosen
        weight.was_trainable = was_trainable and path not in chosen  # what its user freezes from here on stays so
    if not model.trainable_weights:
        for weight, trainable, was_trainable in before:
            weight.trainable, weight.was_trainable = trainable, was_trainable
        raise ValueError(f"{', '.join(patterns)} matches no weight that can be trained.")
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
    _check_patterns("patterns", patterns)
    _check_patterns("modules_to_save", modules_to_save)
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
        for name, matrix in layer.matrices.items():
            if matrix.variable.constraint is not None:
                raise ValueError(f"{path} has a constraint of its {name}; expected none with LoRA.")
    saved = _matching(named_weights(model), modules_to_save)
    matrices = {id(matrix.variable) for layer in layers.values() for matrix in layer.matrices.values()}
    for path in (path for path, weight in saved.items() if id(weight) in matrices):
        raise ValueError(f"{path} is in modules_to_save and gets an addition; expected one of the two.")
    for weight in named_weights(model).values():
        if not is_adapter(weight):  # of an earlier call, with other patterns
            weight.trained_before_lora = getattr(weight, "trained_before_lora", weight.trainable)
            weight.trainable = False
    for layer in layers.values():
        layer.enable_lora(rank, lora_alpha)
    for weight in saved.values():
        if not is_adapter(weight):
            weight.trainable = weight.trained_before_lora or getattr(weight, "was_trainable", False)
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


def merge_lora(model: keras.Model) -> None:
    """Add the low-rank additions to their matrices and remove them; what was trainable before is so again."""
    for _, layer in _layers(model, "lora"):
        layer.merge_lora()
    for weight in named_weights(model).values():
        weight.trainable = weight.__dict__.pop("trained_before_lora", weight.trainable)


def save_adapters(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Write the additions of a model and the weights trained beside them, and nothing else, to a safetensors file."""
    matrices = [matrix for _, layer in _layers(model, "lora") for matrix in layer.matrices.values()]
    if not matrices:
        raise ValueError(f"{model.name} has no adapters; expected a model after enable_lora.")
    sizes = sorted({(matrix.lora_rank, matrix.lora_alpha) for matrix in matrices})
    if len(sizes) > 1:
        raise ValueError(f"{model.name} has adapters of (lora_rank, lora_alpha) {sizes}; a file holds those of one.")
    metadata = {"lora_rank": str(sizes[0][0]), "lora_alpha": str(sizes[0][1])}
    beside = {key: w for key, w in named_weights(model).items() if w.trainable and not is_adapter(w)}
    arrays = {key: _as_saved(weight) for key, weight in {**_adapters(model), **beside}.items()}
    with atomic_write(path) as temporary:
        write_tensors(temporary, arrays, {"format": "keras_seq", **metadata})


def _as_saved(weight):
    """Return the numbers of a weight in a type that holds them exactly and every reader of safetensors knows."""
    return ops.convert_to_numpy(weight if weight.dtype == "float64" else ops.cast(weight, "float32"))


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
        for kernel, matrix in layers[name].matrices.items():
            rows, columns = matrix.shape
            shapes |= {f"{name}/{kernel}_lora_a": (rows, rank), f"{name}/{kernel}_lora_b": (rank, columns)}
    for key, shape in shapes.items():
        if key not in arrays or arrays[key].shape != shape or arrays[key].dtype not in SAVED_DTYPES:
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


def _check_patterns(name, patterns):
    if isinstance(patterns, str):
        raise ValueError(f"{name}={patterns!r}; expected a list of patterns.")


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

"""Match the tensors of a file with the variables of a model by a family's table, and copy them in either direction.

`blocks_of`, `fields_of` and `name_of` read from a model what its config would say; `same_function` compares two models.
"""

import concurrent.futures
import dataclasses
import fnmatch
import math
import re

import keras
import numpy as np
from keras import ops

from keras_seq.layers import PreNormResidual, TransformerBlock
from keras_seq.layers.introspection import named_weights
from keras_seq.models import LanguageModel
from keras_seq.pretrained.family import Family, Layout, Tensor
from keras_seq.pretrained.folder_files import PretrainedError, TensorFiles, overflows

MAX_NAMES = 3  # in a message
UNEQUAL = {  # keys of a layer's config that do not change what it computes after training
    *("name", "dtype", "trainable", "seed", "dropout", "rate", "build_config", "quantization_config"),
    *("shared_object_id", "kernel_initializer", "bias_initializer", "embeddings_initializer", "residual_initializer"),
    *("output_initializer", "lora_rank", "lora_alpha", "date_saved", "compile_config", "registered_name"),
}


def variables_of(models) -> dict:
    """Return the weights of models by their paths."""
    return {path: weight for model in models for path, weight in named_weights(model).items()}


def expected_tensors(family: Family, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Return the tensors that hold variables of these shapes."""
    layers = [int(match[1]) for path in shapes if (match := re.match(r"(?:block|encoder|decoder)_(\d+)/", path))]
    expected, covered = {}, set()
    for entry in family.tensors:
        for n in range(max(layers, default=-1) + 1) if "{n}" in entry.name else [0]:
            paths = tuple(path.replace("{n}", str(n)) for path in entry.variables)
            fits = all((path.replace("{n}", str(n)) in shapes) == has for path, has in entry.beside.items())
            if shapes.keys() >= {*paths} and fits:
                name, layout = entry.name.replace("{n}", str(n)), entry.layout
                if not isinstance(layout, Layout):
                    layout = layout(lambda path, n=n: shapes[path.replace("{n}", str(n))])
                expected[name] = Tensor(name, paths, layout)
                covered |= {*paths}
    for path in shapes.keys() - covered:
        raise PretrainedError(f"The variable {path} has no place in a model of model_type={family.model_type!r}.")
    return expected


def match(family: Family, shapes: dict[str, tuple[int, ...]], files: TensorFiles, ignore=()) -> dict[str, Tensor]:
    """Check that a file has every tensor of a model in its shape, and no other, without reading values."""
    expected, names_in_file = expected_tensors(family, shapes), {}
    left_out = [name for name in files if any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore)]
    for name in files:
        table_name = name
        for pattern, replacement in family.renames:
            table_name = re.sub(pattern, replacement, table_name)
        if name in left_out or re.fullmatch(family.buffers, table_name):
            continue
        if table_name in names_in_file:
            raise PretrainedError(
                f"The file holds {name!r} and {names_in_file[table_name]!r}, which are the same tensor."
            )
        names_in_file[table_name] = name
    copies = {name: family.tied[name] for name in names_in_file.keys() & family.tied.keys() - expected.keys()}
    missing = expected.keys() - names_in_file.keys()
    tied = ", or tie_word_embeddings=true in config.json" if missing & family.tied.keys() else ""
    _refuse("lacks", missing, f"expected a file of the same model{tied}")
    _refuse(
        "also holds",
        names_in_file.keys() - expected.keys() - copies.keys(),
        "leave them out by ignore=, if that is meant",
    )
    tensors = {names_in_file[name]: tensor for name, tensor in expected.items()}
    tensors |= {names_in_file[name]: dataclasses.replace(expected[of], variables=()) for name, of in copies.items()}
    for name, tensor in tensors.items():
        paths = expected[tensor.name].variables
        shape = tensor_shape(tensor, [shapes[path] for path in paths])
        if files.shape(name) != shape:
            raise PretrainedError(
                f"The tensor {name!r} has the shape {list(files.shape(name))}; expected {list(shape)}, as config.json "
                "says."
            )
    return tensors


def _refuse(verb, names, remedy):
    if names:
        names = sorted(names)
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        raise PretrainedError(f"The file {verb} {', '.join(names[:MAX_NAMES])}{more}; {remedy}.")


def tensor_shape(tensor: Tensor, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of a tensor that holds variables of these shapes."""
    concatenated = (*shapes[0][:-1], sum(shape[-1] for shape in shapes))
    return tensor.layout.to_tensor(np.broadcast_to(np.float32(0), concatenated)).shape


def initialize(tensors: dict[str, Tensor], variables: dict, files: TensorFiles) -> None:
    """Read tensors one at a time, the largest first, as the first values of variables that have no memory yet."""
    names = {tensor.name: name for name, tensor in tensors.items() if tensor.variables}
    for name, tensor in sorted(tensors.items(), key=lambda item: -math.prod(files.shape(item[0]))):
        if tensor.variables:
            value = tensor.layout.to_variable(files.read(name))
            targets = [variables[path] for path in tensor.variables]
            ends = np.cumsum([target.shape[-1] for target in targets])
            for target, part in zip(targets, np.split(value, ends[:-1], axis=-1), strict=True):
                if overflows(part, target.dtype):
                    raise PretrainedError(
                        f"The tensor {name!r} has values that {target.dtype} cannot hold; expected another dtype=, "
                        "such as 'bfloat16' or 'mixed_float16'."
                    )
                set_first_value(target, ops.convert_to_tensor(np.ascontiguousarray(part), dtype=target.dtype))
        elif not np.array_equal(files.read(name), files.read(names[tensor.name])):
            raise PretrainedError(
                f"The tensor {name!r} differs from {names[tensor.name]!r}; expected equal values, as config.json ties "
                "the two: tie_word_embeddings=true."
            )


def set_first_value(variable, value) -> None:
    """Give memory to a variable that has none yet (`without_memory`)."""
    variable._initialize(value)
    variable._initializer = None


def tensor_of(tensor: Tensor, variables: dict) -> np.ndarray:
    """Return the tensor that holds variables."""
    values = [ops.convert_to_numpy(variables[path]) for path in tensor.variables]
    concatenated = values[0] if len(values) == 1 else np.concatenate(values, axis=-1)
    return np.ascontiguousarray(tensor.layout.to_tensor(concatenated))


def blocks_of(model) -> tuple[list, list]:
    """Return the blocks of a language model with a number in their names, and its other layers."""
    if not isinstance(model, LanguageModel):
        raise ValueError(f"{model.name} is not a LanguageModel")
    blocks = [layer for layer in model.blocks if isinstance(layer, TransformerBlock | PreNormResidual)]
    others = [layer for layer in model.blocks if layer not in blocks]
    if not blocks or not others:
        raise ValueError(f"{model.name} has no blocks, or no normalization after them")
    return blocks, others


def fields_of(layer, *names: str) -> dict:
    """Return attributes of a layer, which are fields of a config under the same names."""
    return {name: getattr(layer, name) for name in names}


def name_of(value, names: dict) -> str:
    """Return the name of an activation."""
    for name, activation in names.items():
        if keras.activations.get(activation) is value:
            return name
    raise ValueError(f"the activation {getattr(value, '__name__', value)} has no name in {', '.join(names)}")


def without_memory(build):
    """Return what a function builds, without memory for variables."""
    policy = keras.config.dtype_policy()

    def run():
        keras.config.set_dtype_policy(policy)  # Keras has one for each thread
        with keras.StatelessScope(initialize_variables=False):
            return build()

    # In a thread of its own: Keras records uninitialized variables by thread, and the record ends with it.
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


def same_function(model, other) -> bool:
    """Return whether two models are the same but for names, initial values, dropout and dtypes."""
    return _essential(model.get_config()) == _essential(other.get_config())


def _essential(config):
    if isinstance(config, dict):
        # the tail of a functional model's config names tensors by the layers' names, which tables check
        return {key: _essential(value) for key, value in config.items() if key not in UNEQUAL}
    if isinstance(config, str):
        return re.sub(r"get_item_\d+", "get_item", config)  # x[:, 0], which Keras numbers
    return [_essential(value) for value in config] if isinstance(config, list | tuple) else config

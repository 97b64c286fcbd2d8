"""Read from a Keras model what a config would have to say, and whether that config builds the same model."""

import concurrent.futures
import re

import keras

from keras_seq.layers import PreNormResidual, TransformerBlock
from keras_seq.models import LanguageModel

UNEQUAL = {  # keys of a layer's config that do not change what it computes after training
    *(
        "name",
        "dtype",
        "trainable",
        "seed",
        "dropout",
        "rate",
        "build_config",
        "quantization_config",
        "shared_object_id",
    ),
    *("kernel_initializer", "bias_initializer", "embeddings_initializer", "residual_initializer"),
    *("output_initializer", "lora_rank", "lora_alpha", "date_saved", "compile_config", "registered_name"),
}


def blocks_of(model) -> tuple[list, list]:
    """Return the blocks of a language model with a number in their names, and its other layers.

    Args:
        model: A Keras model.

    Raises:
        ValueError: It is not a `LanguageModel` of blocks.
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(f"{model.name} is not a LanguageModel")
    blocks = [layer for layer in model.blocks if isinstance(layer, TransformerBlock | PreNormResidual)]
    others = [layer for layer in model.blocks if layer not in blocks]
    if not blocks or not others:
        raise ValueError(f"{model.name} has no blocks, or no normalization after them")
    return blocks, others


def name_of(value, names: dict) -> str:
    """Return the name of an activation.

    Args:
        value: The function.
        names: Names with functions or Keras's names of them.

    Raises:
        ValueError: It has no name there.
    """
    for name, activation in names.items():
        if keras.activations.get(activation) is value:
            return name
    raise ValueError(f"the activation {getattr(value, '__name__', value)} has no name in {', '.join(names)}")


def without_memory(build):
    """Return what a function builds, without memory for variables.

    Args:
        build: A function without arguments, which builds Keras models.
    """

    def run():
        with keras.StatelessScope(initialize_variables=False):
            return build()

    # In a thread of its own: Keras records uninitialized variables by thread, and the record ends with it.
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


def same_function(model, other) -> bool:
    """Return whether two models are the same but for names, initial values, dropout and dtypes.

    Args:
        model: A Keras model.
        other: Another one.
    """
    return _essential(model.get_config()) == _essential(other.get_config())


def _essential(config):
    if isinstance(config, dict):
        # the tail of a functional model's config names tensors by the layers' names, which tables check
        return {key: _essential(value) for key, value in config.items() if key not in UNEQUAL}
    if isinstance(config, str):
        return re.sub(r"get_item_\d+", "get_item", config)  # x[:, 0], which Keras numbers
    return [_essential(value) for value in config] if isinstance(config, list | tuple) else config

"""The models of `experiments.finetune`: the base, and what each method makes of it."""

import hashlib

import keras
import numpy as np

from experiments.finetune.settings import FinetuneConfig
from keras_seq.models import LanguageModel
from keras_seq.models.lora import enable_lora, set_trainable


def with_new_weights(model: LanguageModel) -> LanguageModel:
    """Return a model of the same config with weights as its initializers draw them."""
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy.build((None, None))
    return copy


def num_trainable(model: keras.Model) -> int:
    """Return the number of weights that training changes."""
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


def digest(model: keras.Model) -> str:
    """Return the SHA-256 of all weights, so that a run goes on from the base that it began with only."""
    sha256 = hashlib.sha256()
    for weight in model.get_weights():
        sha256.update(np.ascontiguousarray(weight).tobytes())
    return sha256.hexdigest()


def prepare(model: LanguageModel, config: FinetuneConfig, method: str) -> keras.Model:
    """Return the model that a method trains, with the weights that it trains.

    Args:
        model: The base; with lora and full it is changed itself.
        config: The options.
        method: One of METHODS.

    Raises:
        ValueError: A pattern of `--trainable` or `--modules-to-save` matches nothing.
    """
    if method == "scratch":
        return with_new_weights(model)
    if method == "lora":
        enable_lora(model, config.lora_rank, config.lora_alpha, config.trainable, config.modules_to_save)
    else:
        set_trainable(model, config.trainable)
    return model

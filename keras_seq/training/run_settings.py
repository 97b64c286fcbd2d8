"""Describe what decides the result of a run, for its config.json: a run that differs in any of it is another run.

    train          TrainConfig, with the defaults that depend on the model; not what a compiled model has instead
    optimizer      class and arguments of the optimizer, its schedule among them
    loss           class and arguments of the loss
    architecture   class and arguments of the model and of each layer in it, shapes of its weights, which are trained
    length         steps, and tokens of a step
    batches        class and arguments of the batches; texts and arrays by a digest

Batches of another kind than those of `keras_seq.data` are known by a digest of the first one. The values that weights
begin with are not compared: two runs of one program draw others.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_seq.data.pipeline import StepBatches
from keras_seq.data.token_files import TokenFiles
from keras_seq.training import processes
from keras_seq.training.checkpoints import AUTO_SUFFIX
from keras_seq.training.config import COMPILED_FIELDS, TrainConfig

RECORDED = ("train", "optimizer", "loss", "architecture", "length", "batches")
BLOCK, MAX_BLOCKS = 1 << 20, 32  # elements that are digested at once, and blocks of a long array, spread evenly
MAX_LIST = 64  # longer lists in the config of a layer, such as tables, are digested
KERAS_FORM = {"module", "class_name", "config", "registered_name"}  # of an object that Keras serialized
PASSING = {"build_config", "compile_config", "shared_object_id"}  # of a use of the object, not of the object
MACHINE = {"name", "iteration_dtype"}  # arguments of an optimizer that depend on names and processors


def run_settings(
    training_model: keras.Model, dataset_fn: Callable, tokens_per_step: int, total_steps: int, train: TrainConfig
) -> dict:
    """Return the parts of config.json that are called RECORDED.

    Args:
        training_model: The compiled model.
        dataset_fn: As for `fit_resumable`.
        tokens_per_step: Tokens of a batch.
        total_steps: Step at which training ends.
        train: Training config.
    """
    return {
        "train": _train_settings(training_model, train),
        "optimizer": _optimizer_settings(training_model.optimizer),
        "loss": _object_settings(training_model.loss),
        "architecture": {**_object_settings(training_model), "weights": _weights(training_model)},
        "length": {"steps": total_steps, "tokens_per_step": tokens_per_step},
        "batches": _batch_settings(dataset_fn),
    }


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def model_name(model: keras.Model) -> str:
    """Return the name of a model without the suffix of a second one in the same process."""
    return AUTO_SUFFIX.sub("", model.name)


def array_digest(array) -> str:
    """Return the SHA-256 of an array or of `TokenFiles`, integers of any dtype alike.

    Of more than MAX_BLOCKS blocks of BLOCK elements, as many are read, spread evenly from the first to the last; with
    files of an index, also the digests there, which are of all their ids.

    Args:
        array: Anything that has slices along its first axis and a length.
    """
    digest, length = hashlib.sha256(), len(array)
    width = math.prod(getattr(array, "shape", (length,))[1:])
    rows = max(1, BLOCK // max(1, width))
    starts = range(0, length, rows)
    if len(starts) > MAX_BLOCKS:
        starts = np.linspace(0, length - rows, MAX_BLOCKS).astype("int64").tolist()
        digest.update(json.dumps([getattr(shard, "sha256", None) for shard in getattr(array, "shards", ())]).encode())
    for start in starts:
        block = np.ascontiguousarray(array[start : start + rows])
        block = block.astype("<i8") if block.dtype.kind in "iub" else block
        digest.update(block.tobytes() if block.dtype != object else repr(block.tolist()).encode())
    digest.update(json.dumps([length, width]).encode())
    return digest.hexdigest()


def _train_settings(training_model, train):
    settings = dataclasses.asdict(train)
    if training_model.optimizer.train_config is not None:
        return settings | train.resolved(training_model)
    return {name: value for name, value in settings.items() if name not in COMPILED_FIELDS}


def _optimizer_settings(optimizer):
    settings, train = _object_settings(optimizer), optimizer.train_config
    by_length = {"ema_momentum"} if train is not None and train.ema_momentum is None else set()
    return {name: value for name, value in settings.items() if name not in MACHINE | by_length}


def _object_settings(value: Any) -> dict:
    """Return class and arguments of an object of Keras, only the class of one that Keras cannot serialize."""
    try:
        serialized = keras.saving.serialize_keras_object(value)
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return {"class": type(value).__name__}
    names = {}
    _number_names(serialized, names)
    plain = _plain(serialized, names)
    return plain if isinstance(plain, dict) else {"class": plain}


def _number_names(value, names):
    """Give every name the number of its place among those that are alike, as a second model in a process has others."""
    if isinstance(value, dict):
        name = value.get("name")
        if isinstance(name, str) and name not in names:
            base = AUTO_SUFFIX.sub("", name)
            number = sum(AUTO_SUFFIX.sub("", other) == base for other in names)
            names[name] = f"{base}_{number}" if number else base
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for part in value:
        _number_names(part, names)


def _plain(value, names):
    """Return JSON values whose leaves have names: a list of objects becomes a dict by index."""
    if isinstance(value, dict):
        if "class_name" in value and "config" in value:
            config, kind = value["config"], value.get("registered_name") or value["class_name"]
            rest = {name: part for name, part in value.items() if name not in KERAS_FORM}
            value = {"class": kind, **rest, **(config if isinstance(config, dict) else {"value": config})}
        return {str(name): _plain(part, names) for name, part in value.items() if name not in PASSING}
    if isinstance(value, list | tuple):
        if any(isinstance(part, dict | list | tuple) for part in value):
            return {str(index): _plain(part, names) for index, part in enumerate(value)}
        parts = [_plain(part, names) for part in value]
        return parts if len(parts) <= MAX_LIST else {"length": len(parts), "sha256": text_digest(json.dumps(parts))}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return names.get(value, value)
    is_json = value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_json else str(value) if isinstance(value, float) else type(value).__name__


def _weights(model):
    weights = [(math.prod(v.shape), tuple(v.shape), v.trainable) for v in model.weights]
    return {
        "parameters": sum(size for size, *_ in weights),
        "trainable_parameters": sum(size for size, _, trainable in weights if trainable),
        "sha256": text_digest(json.dumps(weights)),
    }


def _batch_settings(dataset_fn):
    batches = getattr(dataset_fn, "__self__", None)
    if not isinstance(batches, StepBatches):
        return _first_batch(lambda: next(iter(dataset_fn(0, 1))))
    settings = _described(batches)
    is_known = dataclasses.is_dataclass(batches) and type(batches).__module__.startswith("keras_seq.")
    return settings if is_known else {**settings, **_first_batch(lambda: batches.batch(0))}


def _first_batch(first):
    """Return the digest of a batch; of several processes, each has other rows."""
    if processes.count() > 1:
        return {}
    leaves = keras.tree.flatten(first())
    arrays = [np.atleast_1d(keras.ops.convert_to_numpy(leaf)) for leaf in leaves if leaf is not None]
    return {"first_batch": text_digest(json.dumps([*map(array_digest, arrays)]))}


def _described(value):
    """Return the arguments of batches, or of what is in them, as JSON values."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, StepBatches):
        fields = {name: part for name, part in vars(value).items() if not name.startswith("_")}
    elif isinstance(value, dict):
        return {str(name): _described(part) for name, part in value.items()}
    elif isinstance(value, tuple | list):
        return {str(index): _described(part) for index, part in enumerate(value)}
    elif isinstance(value, TokenFiles) or (isinstance(value, np.ndarray) and value.ndim):
        token = {"document_token": value.document_token} if isinstance(value, TokenFiles) else {}
        return {"length": len(value), "sha256": array_digest(value), **token}
    else:
        return _plain(value, {})
    return {"class": type(value).__name__, **{name: _described(part) for name, part in fields.items()}}

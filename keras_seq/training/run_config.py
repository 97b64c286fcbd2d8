"""Describe in config.json what decides the result of a run, and check that a run is resumed with the same.

    train          TrainConfig, with the defaults that depend on the model; not what a compiled model has instead
    optimizer      class and arguments of the optimizer, its schedule among them
    loss           class and arguments of the loss
    architecture   class and arguments of the model and its layers; shapes of its weights, and whether they are trained
    length         steps, and tokens of a step
    batches        class and arguments of the batches; texts and arrays by a digest; other kinds by their first batch
    versions, environment      can change the last bits: a difference is a warning

What differs when a run is resumed has to be MUTABLE, and nothing in GROW_ONLY may become smaller.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import json
import math
import os
import pathlib
import platform
import subprocess
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import keras_seq
from keras_seq.backends import num_cores
from keras_seq.data.pipeline import StepBatches
from keras_seq.data.token_files import TokenFiles
from keras_seq.files import as_json, set_aside, write_bytes
from keras_seq.training import checkpoints, distributed
from keras_seq.training.checkpoints import AUTO_SUFFIX, CheckpointError, CorruptCheckpointError
from keras_seq.training.config import COMPILED_FIELDS, TrainConfig
from keras_seq.training.run_folder import read_checksummed

RECORDED = ("train", "optimizer", "loss", "architecture", "length", "batches")
RECORDED_LATER = {*RECORDED, "model", "tokenizer", "validation"}  # parts that earlier runs may not have
OF_LIBRARIES = ("optimizer", "loss", "architecture")  # parts that have the arguments of Keras's own classes
INTERVALS = {"log_every", "validate_every", "checkpoint_every", "checkpoint_every_seconds", "max_checkpoints_to_keep"}
GROW_ONLY = {"tokens", "steps", "total_steps", "epochs", "num_seeds"}
MUTABLE = INTERVALS | GROW_ONLY | {"patience", "on_nan", "tracker"}
VERSION_KEYS = {"commit", "keras", "tensorflow", "jax", "torch", "numpy", "python"}
MACHINE_KEYS = {"backend", "cores", "threads", "processor", "devices"}
BLOCK, MAX_BLOCKS = 1 << 20, 32  # elements that are digested at once, and blocks of a long array, spread evenly
MAX_LIST = 64  # longer lists in the config of a layer, such as tables, are digested
KERAS_FORM = {"module", "class_name", "config", "registered_name"}  # of an object that Keras serialized
PASSING = {"build_config", "compile_config", "shared_object_id"}  # of a use of the object, not of the object
MAX_DIFFERENCES = 5  # in a message
MACHINE = {"name", "iteration_dtype"}  # arguments of an optimizer that depend on names and processors


def run_settings(
    training_model: keras.Model, dataset_fn: Callable, tokens_per_step: int, total_steps: int, train: TrainConfig
) -> dict:
    """Return the RECORDED parts of config.json."""
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

    Of a long array MAX_BLOCKS blocks of BLOCK elements are read, spread evenly. The digests in an index of `TokenFiles`
    are included.
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
    if distributed.count() > 1:
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


def environment() -> dict:
    """Return the backend, cores, threads, processor and number of devices: they can change the last bits of sums."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    threads = ", ".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name)) or "one a core"
    machine = {"backend": keras.backend.backend(), "cores": num_cores(), "threads": threads, "processor": _processor()}
    distribution = keras.distribution.distribution()
    return machine if distribution is None else {**machine, "devices": distribution.device_mesh.devices.size}


def _processor():
    """Return the name of the processor, as far as the system gives it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def versions() -> dict:
    """Return the versions of keras_seq, Keras, its backend, NumPy and Python, and the git commit if there is one."""
    backend = keras.backend.backend()
    packages = {"keras_seq": keras_seq, "keras": keras, backend: importlib.import_module(backend), "numpy": np}
    checkout = pathlib.Path(__file__).parents[2]
    commit = None
    if (checkout / ".git").exists():  # not the repository of somebody else that the package is installed in
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            command = ["git", "rev-parse", "HEAD"]
            commit = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    package_versions = {name: package.__version__ for name, package in packages.items()}
    return {**package_versions, "python": platform.python_version(), "commit": commit}


def flatten(config: dict, prefix: str = "") -> dict:
    """Return the leaves of a nested config by dotted name, as JSON values."""
    leaves = {}
    for name, value in config.items():
        leaves |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return as_json(leaves)


def diff(before: dict, now: dict) -> dict[str, tuple]:
    """Return the dotted names under which two nested configs differ."""
    before, now = flatten(before), flatten(now)
    names = dict.fromkeys([*before, *now])
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


def leaf_name(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


def format_diff(differences: dict[str, tuple]) -> str:
    """Return the result of `diff` as text for a message: a few, those of layers last, and how many more."""
    differences = dict(sorted(differences.items(), key=lambda item: item[0].startswith("architecture")))
    texts = [f"{name} was {before!r:.80} and is {now!r:.80}" for name, (before, now) in differences.items()]
    more = len(texts) - MAX_DIFFERENCES
    return "; ".join(texts[:MAX_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def read_config(folder: str | pathlib.Path) -> dict:
    """Return config.json of a run; a corrupt or missing one is restored from a checkpoint, with a warning."""
    path = pathlib.Path(folder) / "config.json"
    try:
        return read_checksummed(path)
    except (CorruptCheckpointError, FileNotFoundError) as error:
        problem = str(error) if isinstance(error, CorruptCheckpointError) else f"{path} is missing"
        copy = checkpoints.latest_copy(path.parent / "checkpoints", path.name)
        if copy is None:
            remedy = f"remove {path.parent} to train this run anew"
            raise CheckpointError(f"{problem}, and no checkpoint there has a copy of it: {remedy}.") from error
    warnings.warn(f"{problem}; it is restored from a checkpoint{set_aside(path)}.", stacklevel=3)
    write_bytes(path, copy)
    return read_checksummed(path)


def check_resumable(folder: str | pathlib.Path, config: dict):
    """Check that a run with checkpoints has an equal config; warn about other versions, backend or machine."""
    folder = pathlib.Path(folder)
    if not checkpoints.has_checkpoints(folder / "checkpoints"):
        return
    before, now = ({**part, "experiment": {}} for part in (read_config(folder), config))
    for name in RECORDED_LATER - (before.keys() & now.keys()):
        before.pop(name, None), now.pop(name, None)
    differences = diff(before, now)
    versions, machine = (
        {name: pair for name, pair in differences.items() if leaf_name(name) in keys}
        for keys in (VERSION_KEYS, MACHINE_KEYS)
    )
    other = {name: pair for name, pair in differences.items() if name not in versions and name not in machine}
    unknown = flatten(before).keys() ^ flatten(now).keys()
    other = {
        name: pair for name, pair in other.items() if name not in unknown or not _is_new(name, pair, bool(versions))
    }
    refused = {name: pair for name, pair in other.items() if not _may_change(name, *pair)}
    if refused:
        differences, remedy = format_diff(refused), "Resume it with the same values, or start a new run."
        raise CheckpointError(f"{folder} was started with another config: {differences}. {remedy}")
    if versions:
        warnings.warn(f"{folder} resumes with other versions: {format_diff(versions)}.", stacklevel=3)
    if machine:
        warnings.warn(
            f"{folder} resumes on another backend, machine or other cores: {format_diff(machine)}; the last bits may "
            "differ from an uninterrupted run.",
            stacklevel=3,
        )


def _is_new(name, pair, other_versions):
    """Return whether one of the configs may lack a name because later versions have added it."""
    part = name.partition(".")[0]
    return part == "train" or (part == "model" and not any(pair)) or (other_versions and part in OF_LIBRARIES)


def _may_change(name, before, now):
    if leaf_name(name) in GROW_ONLY:
        return None not in (before, now) and now >= before
    return leaf_name(name) in MUTABLE

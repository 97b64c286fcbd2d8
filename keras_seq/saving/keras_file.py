"""Save a model as a `.keras` file, and load such a file from an untrusted source.

    members    config.json, metadata.json, model.weights.h5 and assets, uncompressed, together no larger than the file
    config     layers of keras_seq, those of KERAS_LAYERS, and initializers; no other object is created
    weights    at least as many bytes as the config requires, counted by building the model once without memory
    datasets   contiguous numbers, every object under one name, together no larger than the weights file

An HDF5 dataset declares a shape and a type, and a reader allocates memory for all of it; its bytes may be missing,
compressed, shared or in another file. Keras writes none of these. No code of the file is run (`safe_mode`), and nothing
is written except Keras's temporary folder while it reads assets. SECURITY.md states the guarantees.
"""

import concurrent.futures
import io
import json
import math
import os
import pathlib
import re
import warnings
import zipfile

import h5py
import keras

from keras_seq.files import atomic_write, check_regular
from keras_seq.layers.introspection import iter_layers
from keras_seq.models import laws
from keras_seq.models.lora import is_adapter, merged_values

CONFIG_NAME, METADATA_NAME, WEIGHTS_NAME = "config.json", "metadata.json", "model.weights.h5"
ASSET_PATTERN = re.compile(r"assets(/(?!\.)[\w.-]+)*/?", re.ASCII)
KERAS_LAYERS = {
    *("InputLayer", "Activation", "Dense", "Dropout", "Embedding", "Identity"),
    *("LayerNormalization", "RMSNormalization", "Rescaling", "ReversibleEmbedding"),
}
KERAS_OBJECTS = {
    *("Functional", "DTypePolicy", "GetItem", "NotEqual"),
    *("QuantizedDTypePolicy", "Int4DTypePolicy", "Int8QuantizationConfig", "Int4QuantizationConfig", "AbsMaxQuantizer"),
}
KERAS_VALUES = {"__keras_tensor__", "__slice__"}
REGISTERED_PREFIX = "keras_seq>"
MAX_CONFIG_BYTES = 1 << 24
MIN_LAYER_BYTES = 1 << 10  # of one of the layers that a config has by number, in a file of weights
MAX_CONTEXT_LENGTH = 1 << 20  # positions; generation allocates a cache for all of them
NUMERIC_KINDS = "biufV"  # NumPy's kinds: bool, int, uint, float; V of two bytes is bfloat16


class UntrustedModelError(ValueError):
    """Raised for a file that does not hold a model of keras_seq, or may be harmful."""


def save_model(model: keras.Model, path: str | os.PathLike) -> None:
    """Write a model without optimizer and loss, so that loading it needs no training code; adapters are merged.

    Args:
        model: A built Keras model.
        path: The `.keras` file to write, atomically.

    Raises:
        ValueError: It is no model.
        OSError: The file cannot be written.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"model={model!r}; expected a Keras model, and the path after it.")
    copy = _copy(model, model.get_config())
    with atomic_write(path) as temporary:
        copy.save(temporary)


def in_float32(model: keras.Model) -> keras.Model:
    """Return a copy of a model with its weights, adapters merged, that computes in float32."""
    return _copy(model, _config_in_float32(model.get_config()))


def _config_in_float32(config):
    if isinstance(config, dict):
        if config.get("class_name") == "DTypePolicy":
            return {**config, "config": {"name": "float32"}}
        return {key: _config_in_float32(value) for key, value in config.items()}
    return [*map(_config_in_float32, config)] if isinstance(config, list | tuple) else config


def _copy(model, config):
    """Return a built model of another config with the weights of a model, adapters merged."""
    copy = type(model).from_config(config)
    if not copy.built:
        copy.build((None, None))
    merged = merged_values(model)
    copy.set_weights([merged.get(id(weight), weight) for weight in model.weights if not is_adapter(weight)])
    return copy


def load_untrusted_model(path: str | os.PathLike) -> keras.Model:
    """Load the model of a `.keras` file without its optimizer, after a check of its contents.

    Args:
        path: The file.

    Raises:
        UntrustedModelError: The file does not exist, is corrupt, or holds anything but such a model and its weights.
            No memory was allocated for weights then, unless only their values or the context length are wrong.
    """
    path = pathlib.Path(path)
    try:
        config, available_bytes = _read_archive(path)
        _check_config(config, available_bytes)
        # In a thread of its own: Keras records uninitialized variables by thread, and the record ends with it.
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            required_bytes = executor.submit(_count_weight_bytes, config).result()
        if required_bytes > available_bytes:
            raise UntrustedModelError(
                f"its config requires {required_bytes} bytes of weights, but it has {available_bytes}"
            )
        model = keras.models.load_model(path, compile=False, safe_mode=True)
        context_length = getattr(model, "context_length", None) or 0
        if context_length > MAX_CONTEXT_LENGTH:
            raise UntrustedModelError(f"its context_length is {context_length}; expected at most {MAX_CONTEXT_LENGTH}")
        windows = [getattr(layer, "sliding_window", None) or 0 for layer in iter_layers(model)]
        if not context_length and max(windows, default=0) > MAX_CONTEXT_LENGTH:
            raise UntrustedModelError(f"its sliding_window is {max(windows)}; expected at most {MAX_CONTEXT_LENGTH}")
    except Exception as error:  # an untrusted file may fail in any way; the cause is chained
        reason = str(error) if isinstance(error, UntrustedModelError) else f"{type(error).__name__}: {error}"
        reason = getattr(error, "strerror", None) or reason
        raise UntrustedModelError(f"{path}: not a model that can be loaded ({_brief(reason)}).") from error
    return model


def _read_archive(path):
    """Return the config and the size of the weights file in bytes."""
    size = check_regular(path).st_size
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name, info in members.items():
            if name not in (CONFIG_NAME, METADATA_NAME, WEIGHTS_NAME) and not ASSET_PATTERN.fullmatch(name):
                raise UntrustedModelError(f"it has an unexpected member {name!r}")
            if info.file_size != info.compress_size:
                raise UntrustedModelError(f"its member {name!r} is compressed; expected uncompressed members")
        sizes = sum(info.file_size for info in archive.infolist())
        if len(members) != len(archive.infolist()) or sizes > size:
            raise UntrustedModelError(f"its members have {sizes} bytes, the file {size}")
        if not {CONFIG_NAME, WEIGHTS_NAME} <= members.keys() or members[CONFIG_NAME].file_size > MAX_CONFIG_BYTES:
            expected = f"{WEIGHTS_NAME}, and a {CONFIG_NAME} of at most {MAX_CONFIG_BYTES} bytes"
            raise UntrustedModelError(f"expected {expected}")
        config = json.loads(archive.read(CONFIG_NAME))
        check_weights(archive.read(WEIGHTS_NAME))
    if not isinstance(config, dict):
        raise UntrustedModelError(f"its {CONFIG_NAME} is not a JSON object")
    return {**config, "compile_config": None}, members[WEIGHTS_NAME].file_size


def _check_config(config, available_bytes):
    """Check that a config names nothing but parts of models of keras_seq, and no more layers than the weights have."""
    if isinstance(config, dict):
        if "class_name" in config and not _is_allowed(config):
            names = [config.get(key) for key in ("module", "class_name", "registered_name")]
            raise UntrustedModelError(f"its config names {names}, which is not a part of a model of keras_seq")
        num_layers = config.get("num_layers")
        if isinstance(num_layers, int) and num_layers > available_bytes // MIN_LAYER_BYTES:
            raise UntrustedModelError(f"its config requires {num_layers} layers, for {available_bytes} bytes")
        for value in config.values():
            _check_config(value, available_bytes)
    elif isinstance(config, list):
        for value in config:
            _check_config(value, available_bytes)


def _is_allowed(config):
    module, name, registered = (config.get(key) for key in ("module", "class_name", "registered_name"))
    if name == "function":
        registered = config.get("config")
    if isinstance(registered, str) and registered.startswith(REGISTERED_PREFIX):
        return keras.saving.get_registered_object(registered) is not None
    if not (isinstance(module, str) and re.fullmatch(r"keras(\.\w+)*", module)):
        return module is None and name in KERAS_VALUES
    return name in KERAS_LAYERS | KERAS_OBJECTS or (module == "keras.initializers" and registered is None)


def _count_weight_bytes(config) -> int:
    """Return the size of all variables of the model in bytes, without allocating them."""
    with warnings.catch_warnings(), laws.disabled(), keras.StatelessScope(initialize_variables=False):
        warnings.filterwarnings("error", "(?s).*cannot be built")  # Keras only warns of it
        model = keras.saving.deserialize_keras_object(config, safe_mode=True)
        if not isinstance(model, keras.Model) or not model.built:
            raise UntrustedModelError(f"it holds a {type(model).__name__} that is not a built model")
        return sum(math.prod(variable.shape) * _bytes_per_value(variable.dtype) for variable in model.variables)


def _bytes_per_value(dtype):
    bits = re.search(r"\d+$", dtype)
    return int(bits[0]) // 8 if bits else 1


def _brief(text):
    line = " ".join(str(text).split()).rstrip(".")
    return line if len(line) <= 300 else f"{line[:297]}..."


def check_weights(data: bytes) -> None:
    """Check that loading weights takes no more memory than the size of their file."""
    with h5py.File(io.BytesIO(data), "r") as file:
        sizes = sum(_sizes(file, {_address(file)}))
    if sizes > len(data):
        raise UntrustedModelError(f"its datasets claim {sizes} bytes of numbers, the file has {len(data)}")


def _sizes(group, addresses):
    """Yield the size in bytes of each dataset in a group and its subgroups."""
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise UntrustedModelError(f"its {name!r} is a {type(link).__name__}; expected numbers")
        item = group[name]
        if _address(item) in addresses:
            raise UntrustedModelError(f"its {item.name!r} has another name too; expected each object once")
        addresses.add(_address(item))
        _check_attributes(item)
        if isinstance(item, h5py.Dataset):
            yield _size(item)
        elif isinstance(item, h5py.Group):
            yield from _sizes(item, addresses)
        else:
            raise UntrustedModelError(f"its {item.name!r} is a {type(item).__name__}; expected numbers")


def _size(dataset) -> int:
    properties = dataset.id.get_create_plist()
    dtype = dataset.dtype
    if dtype.kind not in NUMERIC_KINDS or dtype.fields or dtype.subdtype:
        raise UntrustedModelError(f"its {dataset.name!r} holds {dtype}; expected plain numbers")
    contiguous = properties.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
    complete = dataset.id.get_storage_size() == dataset.nbytes
    if not contiguous or properties.get_nfilters() or properties.get_external_count() or not complete:
        raise UntrustedModelError(
            f"its {dataset.name!r} is compressed, sparse or elsewhere; expected {dataset.nbytes} contiguous bytes"
        )
    return dataset.nbytes


def _check_attributes(item):
    """Check that each attribute is one value: a list of texts could be one long text many times."""
    for name in item.attrs:
        if item.attrs.get_id(name).shape != ():
            raise UntrustedModelError(f"the attribute {name!r} of {item.name!r} is a list; expected one value")


def _address(item):
    info = h5py.h5o.get_info(item.id)
    return info.fileno, info.addr

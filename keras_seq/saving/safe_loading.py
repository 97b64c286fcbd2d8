"""Load a `.keras` file from an untrusted source.

    members   config.json, metadata.json, model.weights.h5 and assets, uncompressed, together no larger than the file
    config    layers of keras_seq, those of KERAS_LAYERS, and initializers; no other object is created
    weights   at least as many bytes as the config requires, counted by building the model once without memory, and as
              many as its datasets claim (`hdf5_checks.py`)

No code of the file is run (`safe_mode`), and nothing is written except Keras's temporary folder while it reads assets.
SECURITY.md states the guarantees.
"""

import concurrent.futures
import json
import math
import os
import pathlib
import re
import stat
import warnings
import zipfile

import keras

from keras_seq.layers.introspection import iter_layers
from keras_seq.models import step_check
from keras_seq.saving.hdf5_checks import WeightsError, check_weights

CONFIG_NAME, METADATA_NAME, WEIGHTS_NAME = "config.json", "metadata.json", "model.weights.h5"
ASSET_PATTERN = re.compile(r"assets(/(?!\.)[\w.-]+)*/?", re.ASCII)
KERAS_LAYERS = {
    *("InputLayer", "Activation", "Dense", "Dropout", "Embedding"),
    *("LayerNormalization", "RMSNormalization", "Rescaling", "ReversibleEmbedding"),
}
KERAS_OBJECTS = {
    *("Functional", "DTypePolicy", "GetItem", "NotEqual"),
    *("QuantizedDTypePolicy", "Int4DTypePolicy", "Int8QuantizationConfig", "Int4QuantizationConfig", "AbsMaxQuantizer"),
}
KERAS_VALUES = {"__keras_tensor__", "__slice__"}
REGISTERED_PREFIX = "keras_seq>"
MAX_CONFIG_BYTES = 1 << 24
MAX_CONTEXT_LENGTH = 1 << 20  # positions; generation allocates a cache for all of them


class UntrustedModelError(ValueError):
    """Raised for a file that does not hold a model of keras_seq, or may be harmful."""


def load_untrusted_model(path: str | os.PathLike) -> keras.Model:
    """Load the model of a `.keras` file without its optimizer, after a check of its contents.

    Args:
        path: The file.

    Returns:
        The model.

    Raises:
        UntrustedModelError: The file does not exist, is corrupt, or holds anything but such a model and its weights.
            No memory was allocated for weights then, unless only their values or the context length are wrong.
    """
    path = pathlib.Path(path)
    try:
        config, available_bytes = _read_archive(path)
        _check_config(config)
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
        is_own = isinstance(error, UntrustedModelError | WeightsError)
        reason = str(error) if is_own else f"{type(error).__name__}: {error}"
        reason = getattr(error, "strerror", None) or reason
        raise UntrustedModelError(f"{path}: not a model that can be loaded ({_brief(reason)}).") from error
    return model


def _read_archive(path):
    """Return the config and the size of the weights file in bytes."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedModelError("expected a regular file")
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name, info in members.items():
            if name not in (CONFIG_NAME, METADATA_NAME, WEIGHTS_NAME) and not ASSET_PATTERN.fullmatch(name):
                raise UntrustedModelError(f"it has an unexpected member {name!r}")
            if info.file_size != info.compress_size:
                raise UntrustedModelError(f"its member {name!r} is compressed; expected uncompressed members")
        sizes = sum(info.file_size for info in archive.infolist())
        if len(members) != len(archive.infolist()) or sizes > status.st_size:
            raise UntrustedModelError(f"its members have {sizes} bytes, the file {status.st_size}")
        if not {CONFIG_NAME, WEIGHTS_NAME} <= members.keys() or members[CONFIG_NAME].file_size > MAX_CONFIG_BYTES:
            expected = f"{WEIGHTS_NAME}, and a {CONFIG_NAME} of at most {MAX_CONFIG_BYTES} bytes"
            raise UntrustedModelError(f"expected {expected}")
        config = json.loads(archive.read(CONFIG_NAME))
        check_weights(archive.read(WEIGHTS_NAME))
    if not isinstance(config, dict):
        raise UntrustedModelError(f"its {CONFIG_NAME} is not a JSON object")
    return {**config, "compile_config": None}, members[WEIGHTS_NAME].file_size


def _check_config(config):
    """Check that a config names nothing but parts of models of keras_seq."""
    if isinstance(config, dict):
        if "class_name" in config and not _is_allowed(config):
            names = [config.get(key) for key in ("module", "class_name", "registered_name")]
            raise UntrustedModelError(f"its config names {names}, which is not a part of a model of keras_seq")
        for value in config.values():
            _check_config(value)
    elif isinstance(config, list):
        for value in config:
            _check_config(value)


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
    with warnings.catch_warnings(), step_check.disabled(), keras.StatelessScope(initialize_variables=False):
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

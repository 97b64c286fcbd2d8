"""Reading a `.keras` file that somebody else may have made.

    names     config.json, metadata.json, model.weights.h5 and assets, stored as they are: no more than the file's bytes
    config    layers of keras_seq, those of LAYERS, and initializers; nothing else is made
    weights   as many bytes as the config asks for: the model is built once without memory, and counted;
              and as many as its datasets claim to have (`hdf5.py`)

No code of the file is run (`safe_mode`), and nothing is written but what Keras keeps in a temporary folder while it
reads assets. SECURITY.md says what is promised.
"""

import concurrent.futures
import json
import math
import pathlib
import re
import stat
import warnings
import zipfile

import keras

from keras_seq.saving.hdf5_checks import WeightsError, check_weights

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
ASSET = re.compile(r"assets(/(?!\.)[\w.-]+)*/?", re.ASCII)
LAYERS = {
    *("InputLayer", "Activation", "Dense", "Dropout", "Embedding"),
    *("LayerNormalization", "RMSNormalization", "ReversibleEmbedding"),
}
PARTS = {"Functional", "DTypePolicy", "GetItem", "NotEqual"}
VALUES = {"__keras_tensor__", "__slice__"}
REGISTERED_PREFIX = "keras_seq>"
MAX_CONFIG_BYTES = 1 << 24  # bytes
MAX_CONTEXT_LENGTH = 1 << 20  # positions, for which a cache is made


class UntrustedModelError(ValueError):
    """A file that holds no model of keras_seq."""


def load_untrusted_model(path) -> keras.Model:
    """The model of a `.keras` file, without its optimizer.

    Args:
        path: the file.

    Raises:
        ArchiveError: the file is none, is torn, or holds something else than such a model and its weights. No weight
            was made then, unless only the weights themselves or the model's context show what is wrong.
    """
    path = pathlib.Path(path)
    try:
        config, room = _read_archive(path)
        _check(config)
        # In a thread of its own, where what Keras remembers of unfinished variables ends with it.
        with concurrent.futures.ThreadPoolExecutor(1) as alone:
            wanted = alone.submit(_bytes_of_weights, config).result()
        if wanted > room:
            raise UntrustedModelError(f"its config asks for {wanted} bytes of weights, but it has {room}")
        model = keras.models.load_model(path, compile=False, safe_mode=True)
        context_length = getattr(model, "context_length", None) or 0
        if context_length > MAX_CONTEXT_LENGTH:
            raise UntrustedModelError(f"its context is {context_length}; expected at most {MAX_CONTEXT_LENGTH}")
    except Exception as error:  # what others made may fail in any way; the cause is kept
        why = (
            str(error) if isinstance(error, UntrustedModelError | WeightsError) else f"{type(error).__name__}: {error}"
        )
        why = getattr(error, "strerror", None) or why
        raise UntrustedModelError(f"{path}: no model that can be loaded ({_brief(why)}).") from error
    return model


def _read_archive(path):
    """The config, and how many bytes the weights have."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise UntrustedModelError("expected a regular file")
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name, info in members.items():
            if name not in (CONFIG, METADATA, WEIGHTS) and not ASSET.fullmatch(name):
                raise UntrustedModelError(f"it has a member {name!r}")
            if info.file_size != info.compress_size:
                raise UntrustedModelError(f"its member {name!r} is compressed; expected it as it is")
        sizes = sum(info.file_size for info in archive.infolist())
        if len(members) != len(archive.infolist()) or sizes > found.st_size:
            raise UntrustedModelError(f"its members have {sizes} bytes, the file {found.st_size}")
        if not {CONFIG, WEIGHTS} <= members.keys() or members[CONFIG].file_size > MAX_CONFIG_BYTES:
            raise UntrustedModelError(f"expected {WEIGHTS}, and a {CONFIG} of at most {MAX_CONFIG_BYTES} bytes")
        config = json.loads(archive.read(CONFIG))
        check_weights(archive.read(WEIGHTS))
    if not isinstance(config, dict):
        raise UntrustedModelError(f"its {CONFIG} is no object")
    return {**config, "compile_config": None}, members[WEIGHTS].file_size


def _check(config):
    """Refuses a config that names anything but what models of keras_seq are made of."""
    if isinstance(config, dict):
        if "class_name" in config and not _known(config):
            names = [config.get(key) for key in ("module", "class_name", "registered_name")]
            raise UntrustedModelError(f"its config names {names}, which is no part of a model of keras_seq")
        for value in config.values():
            _check(value)
    elif isinstance(config, list):
        for value in config:
            _check(value)


def _known(config):
    module, name, registered = (config.get(key) for key in ("module", "class_name", "registered_name"))
    if name == "function":
        registered = config.get("config")
    if isinstance(registered, str) and registered.startswith(REGISTERED_PREFIX):
        return keras.saving.get_registered_object(registered) is not None
    if not (isinstance(module, str) and re.fullmatch(r"keras(\.\w+)*", module)):
        return module is None and name in VALUES
    return name in LAYERS | PARTS or (module == "keras.initializers" and registered is None)


def _bytes_of_weights(config) -> int:
    """What all variables of the model together take; none of them is made."""
    with warnings.catch_warnings(), keras.StatelessScope(initialize_variables=False):
        warnings.filterwarnings("error", "(?s).*cannot be built")  # that is only worth a warning to Keras
        model = keras.saving.deserialize_keras_object(config, safe_mode=True)
        if not isinstance(model, keras.Model) or not model.built:
            raise UntrustedModelError(f"it holds a {type(model).__name__} that is no built model")
        return sum(math.prod(variable.shape) * _item(variable.dtype) for variable in model.variables)


def _item(dtype):
    bits = re.search(r"\d+$", dtype)
    return int(bits[0]) // 8 if bits else 1


def _brief(text):
    line = " ".join(str(text).split()).rstrip(".")
    return line if len(line) <= 300 else f"{line[:297]}..."

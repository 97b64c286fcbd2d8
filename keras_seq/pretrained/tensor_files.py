"""Read the files of a Hugging Face folder: texts, JSON, and tensors one at a time, into NumPy.

    model.safetensors                          all tensors, or
    model.safetensors.index.json               {"weight_map": {tensor: file}} and the files that it names

The `safetensors` library refuses a header that does not fit the file's size. NumPy knows bfloat16 by `ml_dtypes`.
"""

import contextlib
import json
import pathlib

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from keras_seq.files import check_regular

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = "F64", "F32", "F16", "BF16"
MAX_TEXT_BYTES = 1 << 26


class PretrainedError(ValueError):
    """Report a folder that cannot be loaded, or a model that cannot be saved, as a Hugging Face folder."""


def read_text(path: pathlib.Path) -> str:
    """Return the text of a regular file of limited size: pipes and devices may never end."""
    try:
        size = check_regular(path).st_size
        if size > MAX_TEXT_BYTES:
            raise PretrainedError(f"{path} has {size} bytes; expected at most {MAX_TEXT_BYTES}.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PretrainedError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise PretrainedError(f"{path} is not UTF-8: {error}.") from None


def read_json(path: pathlib.Path) -> dict:
    """Return the object in a JSON file."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{path} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise PretrainedError(f"{path} holds a {type(value).__name__}; expected a JSON object.")
    return value


class TensorFiles:
    """The tensors of a folder's safetensors files: names, shapes, and values when they are read."""

    def __init__(self, folder: pathlib.Path):
        self._entries = {}  # by tensor: its file, dtype and shape
        for path in _paths(folder):
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    if name in self._entries:
                        raise PretrainedError(
                            f"{path} holds the tensor {name!r}, which another file of the folder holds too."
                        )
                    entry = file.get_slice(name)
                    self._entries[name] = path, entry.get_dtype(), tuple(entry.get_shape())

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._entries)

    def __iter__(self):
        """Return an iterator over the names of the tensors."""
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        _, dtype, shape = self._entries[name]
        if dtype not in FLOATS:
            raise PretrainedError(
                f"The tensor {name!r} holds {dtype}; expected one of {', '.join(FLOATS)}: load the model before its "
                "quantization."
            )
        return shape

    def read(self, name: str) -> np.ndarray:
        """Return a tensor; its file is open only meanwhile, as memory that maps a file counts, too."""
        with _opened(self._entries[name][0]) as file:
            return file.get_tensor(name)


@contextlib.contextmanager
def _opened(path):
    try:
        check_regular(path)
        with safe_open(path, framework="np") as file:
            yield file
    except (SafetensorError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PretrainedError(f"{path} is not a whole safetensors file: {reason}.") from None


def _paths(folder):
    index = folder / INDEX
    if not index.exists():
        if not (folder / SINGLE).exists():
            raise PretrainedError(
                f"{folder} has no {SINGLE} or {INDEX}; expected a folder that transformers' save_pretrained wrote: "
                "pytorch_model.bin is a pickle, which can run code."
            )
        return [folder / SINGLE]
    if (folder / SINGLE).exists():
        raise PretrainedError(f"{folder} has both {SINGLE} and {INDEX}; expected one: remove what is of other weights.")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise PretrainedError(f'{index} has no "weight_map" from tensors to files.')
    names = sorted({*map(str, weight_map.values())})
    for name in names:
        if pathlib.PurePath(name).name != name or not name.endswith(".safetensors"):
            raise PretrainedError(f"{index} names the file {name!r}; expected a safetensors file of the same folder.")
        if not (folder / name).is_file():
            raise PretrainedError(f"{index} names the file {name!r}, which is not in {folder}.")
    return [folder / name for name in names]


def overflows(values: np.ndarray, dtype) -> bool:
    """Return whether a finite number becomes infinity in another dtype."""
    limit = ml_dtypes.finfo(dtype).max
    if ml_dtypes.finfo(values.dtype).max <= limit:
        return False
    with np.errstate(over="ignore"):
        return bool((np.isinf(values.astype(dtype)) & np.isfinite(values)).any())

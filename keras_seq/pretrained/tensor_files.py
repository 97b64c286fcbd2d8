"""Read the tensors of a folder's safetensors files, one at a time, into NumPy.

    model.safetensors                          all tensors, or
    model.safetensors.index.json               {"weight_map": {tensor: file}} and the files that it names

The `safetensors` library checks headers against the file size. A tensor is read when it is needed, into memory of its
own and aligned as backends need it to use it without a copy: the library would map the whole file, which then counts
twice. NumPy has no bfloat16: `ml_dtypes` has.
"""

import contextlib
import json
import pathlib
import stat
import struct

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
ALIGNMENT = 64  # bytes
MAX_TEXT_BYTES = 1 << 26


class PretrainedError(ValueError):
    """Report a folder that cannot be loaded, or a model that cannot be saved, as a Hugging Face folder."""


def read_text(path: pathlib.Path) -> str:
    """Return the text of a regular file of limited size: pipes and devices may never end."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise PretrainedError(f"{path} is not a regular file; expected a text.")
        if status.st_size > MAX_TEXT_BYTES:
            raise PretrainedError(f"{path} has {status.st_size} bytes; expected at most {MAX_TEXT_BYTES}.")
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


class TensorFiles(contextlib.ExitStack):
    """Open the safetensors files of a folder; a context, which closes them."""

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        self._entries = {}  # by tensor: its open file, its entry in the header, and where the header ends
        for path in _paths(folder):
            if not path.is_file():
                raise PretrainedError(f"{path} is not a regular file; expected safetensors.")
            try:
                with safe_open(path, framework="np"):
                    pass
                file = self.enter_context(path.open("rb"))
            except (SafetensorError, OSError) as error:
                raise PretrainedError(f"{path} is not a whole safetensors file: {error}.") from None
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
            for name in header.keys() - {"__metadata__"}:
                if name in self._entries:
                    raise PretrainedError(
                        f"{path} holds the tensor {name!r}, which another file of the folder holds too."
                    )
                self._entries[name] = file, header[name], 8 + length

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._entries)

    def __iter__(self):
        """Return an iterator over the names of the tensors, in the order of the files."""
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        _, entry, _ = self._entries[name]
        if entry["dtype"] not in FLOATS:
            raise PretrainedError(
                f"The tensor {name!r} holds {entry['dtype']}; expected one of {', '.join(FLOATS)}: load the model "
                "before its quantization."
            )
        return tuple(entry["shape"])

    def read(self, name: str) -> np.ndarray:
        """Return a tensor."""
        file, entry, begin = self._entries[name]
        start, end = entry["data_offsets"]
        memory = np.empty(end - start + ALIGNMENT, np.uint8)
        memory = memory[-memory.ctypes.data % ALIGNMENT :][: end - start]
        file.seek(begin + start)
        if file.readinto(memory) < end - start:
            raise PretrainedError(f"{file.name} has become shorter while it was read; load it again.")
        return memory.view(FLOATS[entry["dtype"]]).reshape(entry["shape"])


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

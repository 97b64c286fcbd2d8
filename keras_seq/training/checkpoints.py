"""Save and restore the state of a training in one safetensors file: `checkpoints/step-00001000.safetensors`.

    model/...      all variables of the training model: weights, dropout seeds, the carried state
    optimizer/...  moments, and the step; data, learning rate and seeds depend on it
    metrics/...    partial sums of the current logging interval
    metadata       the step, copies of the run's config.json and metrics.jsonl, and a checksum of all

A run of one Keras backend goes on on another. A variable's name is its index and its path without automatic suffixes
such as `_1`, which differ for a second model in a process. `latest` names the last checkpoint, so that a missing one is
noticed. best.safetensors is a copy of the checkpoint with the lowest validation loss.
"""

import base64
import contextlib
import filecmp
import hashlib
import json
import os
import pathlib
import re
import stat
import warnings
import zlib

import keras
import numpy as np
import safetensors
import safetensors.numpy

from keras_seq.files import atomic_write, set_aside, write_bytes, write_text
from keras_seq.training import distributed

MAX_TO_KEEP = 2
MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
CHECKSUM = "checksum"
LATEST, BEST = "latest", "best.safetensors"
COPIED_FILES = ("config.json", "metrics.jsonl")  # of the run's folder, kept in the metadata
NAME_PATTERN = re.compile(r"step-(\d{8,})\.safetensors")
AUTO_SUFFIX = re.compile(r"_\d+(?=[/_]|$)")


class CheckpointError(ValueError):
    """Report a run that cannot be resumed or read: of another model, config or version, or corrupt."""


class CorruptCheckpointError(CheckpointError):
    """Report a corrupt, truncated or modified file of a run."""


def checksum(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> str:
    """Return the digest of arrays and of metadata without a checksum: 32 hexadecimal digits."""
    digest = hashlib.blake2b(json.dumps(sorted(metadata.items())).encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def write_arrays(path: str | pathlib.Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]):
    """Write arrays and metadata with a checksum, atomically and durably."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # `save` writes memory as it is
    write_bytes(path, safetensors.numpy.save(arrays, {**metadata, CHECKSUM: checksum(arrays, metadata)}))


def read_arrays(path: str | pathlib.Path, max_bytes: int) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return metadata and arrays as they were written; a file that is not intact is a `CorruptCheckpointError`.

    The file is not trusted: its sizes are checked before it is read, and its arrays may have `max_bytes` at most.
    """
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise CorruptCheckpointError(f"{path} is not intact: it is a symbolic link or not a regular file")
    with open(path, "rb") as file:
        first = file.read(8)
        start = 8 + int.from_bytes(first, "little")  # of the arrays, after the header
        if start > min(status.st_size, MAX_HEADER_BYTES) or status.st_size > start + max_bytes:
            raise CorruptCheckpointError(
                f"{path} is not intact: it has {status.st_size:,} bytes; expected a header of {start:,}, and at most "
                f"{max_bytes:,} of arrays"
            )
        data = first + file.read(status.st_size - 8)
    try:
        arrays = safetensors.numpy.load(data)
        metadata = json.loads(data[8:start]).get("__metadata__") or {}
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptCheckpointError(f"{path} is not intact: {error}") from error
    if metadata.pop(CHECKSUM, None) != checksum(arrays, metadata):
        raise CorruptCheckpointError(f"{path} is not intact: its checksum does not match")
    return metadata, arrays


def _variables(training_model):
    groups = {
        "model": training_model.variables,
        "optimizer": training_model.optimizer.variables,
        "metrics": training_model.metrics_variables,
    }
    return {
        f"{group}/{index:04d}/{AUTO_SUFFIX.sub('', variable.path)}": variable
        for group, variables in groups.items()
        for index, variable in enumerate(variables)
        if group != "model" or not any(variable is metric for metric in groups["metrics"])
    }


def _to_numpy(variable):
    """Return the exact value: integers of any width as int64, and bfloat16 as float32, as NumPy lacks it."""
    value = distributed.whole_value(variable)
    wider = "float32" if value.dtype.name == "bfloat16" else "int64" if value.dtype.kind in "iu" else value.dtype
    return value.astype(wider)


def save(folder: str | pathlib.Path, training_model: keras.Model, max_to_keep: int = MAX_TO_KEEP) -> pathlib.Path:
    """Save a compiled and built model at its step, remove all but the last checkpoints, and return the path."""
    folder, step = pathlib.Path(folder), int(training_model.optimizer.step)
    path = _path(folder, step)
    arrays = {name: _to_numpy(variable) for name, variable in _variables(training_model).items()}
    files = (folder.parent / name for name in COPIED_FILES)
    copies = {p.name: base64.b64encode(zlib.compress(p.read_bytes(), 1)).decode() for p in files if p.is_file()}
    write_arrays(path, arrays, {"step": str(step), **copies})
    write_text(folder / LATEST, path.name)
    prune(folder, max_to_keep)
    return path


def _path(folder, step):
    return pathlib.Path(folder) / f"step-{step:08d}.safetensors"


def _metadata(path) -> dict:
    """Return the metadata of a checkpoint; {} if it is corrupt or missing."""
    try:
        return read_arrays(path, pathlib.Path(path).stat().st_size)[0]
    except (CorruptCheckpointError, FileNotFoundError):
        return {}


def _copy(metadata, name):
    return zlib.decompress(base64.b64decode(metadata[name])) if name in metadata else None


def metrics_at(folder: str | pathlib.Path, step: int) -> bytes:
    """Return metrics.jsonl as it was at the checkpoint of a step, or nothing at step 0, the start of a run."""
    if not step:
        return b""
    metrics = _copy(_metadata(_path(folder, step)), "metrics.jsonl")
    if metrics is None:
        raise CheckpointError(f"{_path(folder, step)} has no copy of metrics.jsonl; train this run anew.")
    return metrics


def latest_copy(folder: str | pathlib.Path, name: str) -> bytes | None:
    """Return one of the COPIED_FILES as the latest intact checkpoint has it, or None."""
    folder = pathlib.Path(folder)
    copies = (_copy(_metadata(path), name) for path in [*reversed(list_checkpoints(folder)), folder / BEST])
    return next((copy for copy in copies if copy is not None), None)


def list_checkpoints(folder: str | pathlib.Path) -> list[pathlib.Path]:
    """Return the paths of the checkpoints in a folder, oldest first."""
    paths = (path for path in pathlib.Path(folder).glob("step-*.safetensors") if NAME_PATTERN.fullmatch(path.name))
    return sorted(paths, key=lambda path: int(NAME_PATTERN.fullmatch(path.name)[1]))


def has_checkpoints(folder: str | pathlib.Path) -> bool:
    """Return whether a folder has a checkpoint to resume from."""
    return bool(list_checkpoints(folder)) or (pathlib.Path(folder) / BEST).exists()


def prune(folder: str | pathlib.Path, max_to_keep: int = MAX_TO_KEEP):
    """Remove all but the last checkpoints."""
    for old in list_checkpoints(folder)[:-max_to_keep]:
        old.unlink()


def keep_last(folder: str | pathlib.Path):
    """Keep the last and the best checkpoint of a finished run: one file with two names where they are the same."""
    best, paths = pathlib.Path(folder) / BEST, list_checkpoints(folder)
    if not paths or not _metadata(paths[-1]):
        return  # the others are what a corrupt one is restored from
    prune(folder, 1)
    if best.is_file() and not best.samefile(paths[-1]) and filecmp.cmp(best, paths[-1], shallow=False):
        with contextlib.suppress(OSError, NotImplementedError), atomic_write(best) as temporary:
            temporary.unlink(missing_ok=True)
            temporary.hardlink_to(paths[-1])  # a file system without links has two files


def save_best_copy(path: str | pathlib.Path):
    """Copy a checkpoint to best.safetensors beside it."""
    path = pathlib.Path(path)
    write_bytes(path.with_name(BEST), path.read_bytes())


def load(path: str | pathlib.Path, training_model: keras.Model) -> int:
    """Restore a checkpoint and return its step; the model is unchanged if an error is raised.

    A file that is missing or not intact is a `CorruptCheckpointError`, one of another model a `CheckpointError`; one
    that cannot be read is an OSError, as it may be intact.
    """
    variables = _variables(training_model)
    expected = {name: _to_numpy(variable) for name, variable in variables.items()}
    try:
        # twice the expected size still allows to name how the checkpoint of another model differs
        _, arrays = read_arrays(path, 2 * sum(value.nbytes for value in expected.values()) + 2**20)
    except FileNotFoundError as error:
        raise CorruptCheckpointError(f"{path} is not intact: {error}") from error
    differences = [f"{name!r:.100}" for name in sorted(arrays.keys() ^ variables.keys())] or [
        f"{name}: {arrays[name].dtype.name} {arrays[name].shape} in the file, {value.dtype.name} {value.shape} in the "
        "model"
        for name, value in expected.items()
        if (arrays[name].dtype, arrays[name].shape) != (value.dtype, value.shape)
    ]
    if differences:
        raise CheckpointError(f"{path}: belongs to another model; it differs in {'; '.join(differences[:5])}.")
    for name, variable in variables.items():
        # to an integer's own width here: JAX would make an int64 an int32 before it becomes a seed's uint32
        value = arrays[name] if variable.dtype == "bfloat16" else arrays[name].astype(variable.dtype)
        variable.assign(value)
    return int(training_model.optimizer.step)


def load_latest(folder: str | pathlib.Path, training_model: keras.Model) -> int:
    """Restore the latest intact checkpoint of a folder and return its step; 0 if there is none.

    A corrupt or missing one is skipped with a warning; a corrupt one is renamed to `*.corrupt`. Then best.safetensors
    is used if it is later than the others.
    """
    folder = pathlib.Path(folder)
    latest, paths, loaded, step, problems = folder / LATEST, list_checkpoints(folder), None, 0, []
    name = latest.read_text(encoding="utf-8", errors="replace") if latest.is_file() else None
    if latest.exists() and not NAME_PATTERN.fullmatch(name or ""):
        aside = set_aside(latest) if name is None else ""  # a folder
        problems.append(f"{latest} is corrupt, so a later checkpoint may be missing{aside}.")
    elif name is not None and name not in {path.name for path in paths}:
        problems.append(f"{folder}: {name!r:.100} is missing.")
    for path in reversed(paths):
        try:
            step = load(path, training_model)
        except CorruptCheckpointError as error:
            problems.append(f"{error}.")
            path.replace(path.with_suffix(".corrupt"))
        else:
            loaded = path
            break
    if problems or loaded is None:
        best = _best_as_step(folder, later_than=-1 if loaded is None else step)
        if best is not None:
            problems = problems or [f"{folder} has no checkpoint except {BEST}."]
            loaded, step = best, load(best, training_model)
    if problems:
        warnings.warn(f"{' '.join(problems)} Training resumes from step {step:,}.", stacklevel=2)
    if loaded is None:
        latest.unlink(missing_ok=True)
    elif name != loaded.name:  # the process was killed before `latest` was written, or `latest` was wrong
        write_text(latest, loaded.name)
    return step


def _best_as_step(folder, later_than):
    """Copy best.safetensors to the name of its step and return the path; None if corrupt or not `later_than` a step."""
    best = folder / BEST
    step = int(_metadata(best).get("step", -1))
    if step <= later_than:
        return None
    path = _path(folder, step)
    write_bytes(path, best.read_bytes())
    return path

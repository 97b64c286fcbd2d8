"""Save and restore the state of a training in one safetensors file: `checkpoints/step-00001000.safetensors`.

    model/...      all variables of the training model: weights, dropout seeds, the carried state
    optimizer/...  moments, and the step, on which data, learning rate and seeds depend
    metrics/...    partial sums of the current logging interval

They are the same on every Keras backend: a run of one goes on on another. The metadata hold the step, the sizes of the
TensorBoard event files, and copies of the run's config.json and metrics.jsonl, from which these two files are rebuilt
if they are corrupt.

A variable's name is its index and its path, so that layers of the same name stay apart. Automatic suffixes such as
`_1` are stripped from the path, because a second model in the same process gets different ones. `latest` holds the name
of the last checkpoint, so that a missing one is noticed. best.safetensors is a copy of the checkpoint with the lowest
validation loss. A finished run keeps its last and its best checkpoint: one file with two names where they are the same.
"""

import base64
import contextlib
import filecmp
import json
import pathlib
import re
import warnings
import zlib

import keras

from keras_seq.files import atomic_write, set_aside, write_text
from keras_seq.tracking.event_files import file_sizes
from keras_seq.training import checksummed_safetensors, processes

MAX_TO_KEEP = 2
LATEST, BEST = "latest", "best.safetensors"
COPIED_FILES = ("config.json", "metrics.jsonl")  # of the run's folder, kept in the metadata
NAME_PATTERN = re.compile(r"step-(\d{8,})\.safetensors")
AUTO_SUFFIX = re.compile(r"_\d+(?=[/_]|$)")


class CheckpointError(ValueError):
    """Report a run that cannot be resumed or read: of another model, config or version, or corrupt."""


class CorruptCheckpointError(CheckpointError):
    """Report a corrupt, truncated or modified file of a run."""


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
    """Return the exact value: bfloat16, which NumPy lacks, as float32, integers, of any width, as int64."""
    value = processes.whole_value(variable)
    wider = "float32" if value.dtype.name == "bfloat16" else "int64" if value.dtype.kind in "iu" else value.dtype
    return value.astype(wider)


def save(folder: str | pathlib.Path, training_model: keras.Model, max_to_keep: int = MAX_TO_KEEP) -> pathlib.Path:
    """Save a checkpoint of a compiled and built model at its current step, and remove old ones.

    Args:
        folder: Folder of the checkpoints, inside the run's folder.
        training_model: Model whose variables are saved, with those of its optimizer and metrics.
        max_to_keep: Number of most recent checkpoints to keep.

    Returns:
        The path of the checkpoint.

    Raises:
        OSError: If it cannot be written; earlier checkpoints are unchanged then.
    """
    folder = pathlib.Path(folder)
    step = int(training_model.optimizer.step)
    path = _path(folder, step)
    arrays = {name: _to_numpy(variable) for name, variable in _variables(training_model).items()}
    checksummed_safetensors.write(path, arrays, {"step": str(step), **_run_metadata(folder.parent)})
    write_text(folder / LATEST, path.name)
    prune(folder, max_to_keep)
    return path


def _run_metadata(run):
    paths = (run / name for name in COPIED_FILES)
    copies = {p.name: base64.b64encode(zlib.compress(p.read_bytes(), 1)).decode() for p in paths if p.is_file()}
    return {"event_file_sizes": json.dumps(file_sizes(run)), **copies}


def _metadata(path) -> dict:
    """Return the metadata of a checkpoint; {} if it is corrupt or missing."""
    try:
        metadata, _ = checksummed_safetensors.read(path, pathlib.Path(path).stat().st_size)
    except (checksummed_safetensors.CorruptFileError, OSError):
        return {}
    return metadata


def logs_at(folder: str | pathlib.Path, step: int) -> tuple[bytes, dict[str, int]]:
    """Return metrics.jsonl and the sizes of the event files as they were at the checkpoint of a step.

    Args:
        folder: Folder of the checkpoints.
        step: Step of an existing checkpoint, or 0 for the start of a run.

    Returns:
        The bytes of metrics.jsonl, and the sizes by path relative to the run's folder.

    Raises:
        CheckpointError: If the checkpoint has no copy of metrics.jsonl.
    """
    if not step:
        return b"", {}
    path = _path(folder, step)
    metadata = _metadata(path)
    if not {"metrics.jsonl", "event_file_sizes"} <= metadata.keys():
        raise CheckpointError(f"{path} has no copy of metrics.jsonl; train this run anew.")
    return _copy(metadata, "metrics.jsonl"), json.loads(metadata["event_file_sizes"])


def _path(folder, step):
    return pathlib.Path(folder) / f"step-{step:08d}.safetensors"


def _copy(metadata, name):
    return zlib.decompress(base64.b64decode(metadata[name])) if name in metadata else None


def latest_copy(folder: str | pathlib.Path, name: str) -> bytes | None:
    """Return the copy of a run's file in the latest intact checkpoint, or None.

    Args:
        folder: Folder of the checkpoints.
        name: One of `COPIED_FILES`.
    """
    folder = pathlib.Path(folder)
    copies = (_copy(_metadata(path), name) for path in [*reversed(list_checkpoints(folder)), folder / BEST])
    return next((copy for copy in copies if copy is not None), None)


def latest_event_file_sizes(folder: str | pathlib.Path) -> dict[str, int]:
    """Return the sizes of the event files at the latest intact checkpoint; {} if there is none."""
    metadata = (_metadata(path) for path in reversed(list_checkpoints(folder)))
    return json.loads(next((m["event_file_sizes"] for m in metadata if "event_file_sizes" in m), "{}"))


def prune(folder: str | pathlib.Path, max_to_keep: int = MAX_TO_KEEP):
    """Remove all but the most recent checkpoints.

    Args:
        folder: Folder of the checkpoints.
        max_to_keep: Number of checkpoints to keep.
    """
    for old in list_checkpoints(folder)[:-max_to_keep]:
        old.unlink()


def keep_last(folder: str | pathlib.Path):
    """Keep one checkpoint of a finished run, and the best one, which takes no space if it is the same.

    A resumed run goes on from the last one as from any; a kill between two steps of this leaves more files than needed.

    Args:
        folder: Folder of the checkpoints.
    """
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
    with atomic_write(path.with_name(BEST)) as temporary:
        temporary.write_bytes(path.read_bytes())


def list_checkpoints(folder: str | pathlib.Path) -> list[pathlib.Path]:
    """Return the paths of the checkpoints in a folder, oldest first."""
    paths = (path for path in pathlib.Path(folder).glob("step-*.safetensors") if NAME_PATTERN.fullmatch(path.name))
    return sorted(paths, key=lambda path: int(NAME_PATTERN.fullmatch(path.name)[1]))


def has_checkpoints(folder: str | pathlib.Path) -> bool:
    """Return whether a folder has a checkpoint to resume from."""
    return bool(list_checkpoints(folder)) or (pathlib.Path(folder) / BEST).exists()


def load(path: str | pathlib.Path, training_model: keras.Model) -> int:
    """Restore a checkpoint and return its step.

    Args:
        path: Path of the checkpoint.
        training_model: Compiled and built model to restore; it is unchanged if an error is raised.

    Returns:
        The step.

    Raises:
        CorruptCheckpointError: If the file is not an intact checkpoint.
        CheckpointError: If its names, shapes or dtypes differ from the model's.
    """
    variables = _variables(training_model)
    expected = {name: _to_numpy(variable) for name, variable in variables.items()}
    try:
        # twice the expected size still allows to name how the checkpoint of another model differs
        _, arrays = checksummed_safetensors.read(path, 2 * sum(value.nbytes for value in expected.values()) + 2**20)
    except (checksummed_safetensors.CorruptFileError, OSError) as error:
        raise CorruptCheckpointError(f"{path}: not an intact checkpoint ({error}).") from error
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

    Corrupt and missing checkpoints are skipped with a warning; corrupt ones are renamed to `*.corrupt`. If the latest
    is not available, best.safetensors is used where it is later than the others.

    Args:
        folder: Folder of the checkpoints.
        training_model: Compiled and built model to restore.

    Returns:
        The step.

    Raises:
        CheckpointError: If the latest intact checkpoint belongs to another model.
    """
    folder = pathlib.Path(folder)
    latest, paths, loaded, step, problem = folder / LATEST, list_checkpoints(folder), None, 0, ""
    name = latest.read_text(encoding="utf-8", errors="replace") if latest.is_file() else None
    if latest.exists() and not NAME_PATTERN.fullmatch(name or ""):
        aside = set_aside(latest) if name is None else ""  # a folder
        problem = f"{latest} is corrupt, so a later checkpoint may be missing{aside}."
    elif name is not None and name not in {path.name for path in paths}:
        problem = f"{folder}: {name!r:.100} is missing."
    for path in reversed(paths):
        try:
            step = load(path, training_model)
        except CorruptCheckpointError as error:
            problem = str(error)
            path.replace(path.with_suffix(".corrupt"))
        else:
            loaded = path
            break
    if problem or loaded is None:
        best = _best_as_step(folder, later_than=-1 if loaded is None else step)
        if best is not None:
            problem = problem or f"{folder} has no checkpoint except {BEST}."
            loaded, step = best, load(best, training_model)
    if problem:
        warnings.warn(f"{problem} Training resumes from step {step:,}.", stacklevel=2)
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
    with atomic_write(path) as temporary:
        temporary.write_bytes(best.read_bytes())
    return path

"""Everything that training needs to go on, in one safetensors file: `checkpoints/step-00001000.safetensors`.

    model/...      every variable of the training model: weights, seeds of dropout, the carried state
    optimizer/...  moments, and the step, which is the clock of data, learning rate and seeds
    metrics/...    the sums of the logging interval that was open

Its metadata hold the step, the sizes of TensorBoard's files, and copies of the run's config.json and metrics.jsonl:
what the checkpoint vouches for, and what those two are written again from where they are damaged.

A name is a number (the variable's place) and the variable's path, so two layers of one name stay apart. Of a path the
numbers are left out by which Keras tells apart what has no name of its own: a second model in one process has others.
`newest` holds the name of the last one, so that it is missed if it is gone; best.safetensors is a copy of the one
that did best in validation.
"""

import base64
import json
import pathlib
import re
import warnings
import zlib

import numpy as np

from keras_seq.atomic_files import atomic_write, set_aside, write_text
from keras_seq.tracking.event_files import sizes
from keras_seq.training import checksummed_safetensors

KEEP = 2
BEST = "best.safetensors"
COPIED = ("config.json", "metrics.jsonl")  # of the folder around that of the checkpoints
NAME = re.compile(r"step-(\d{8,})\.safetensors")
AUTO_SUFFIX = re.compile(r"_\d+(?=[/_]|$)")


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or a run that goes on otherwise than it began."""


class CorruptCheckpointError(CheckpointError):
    """A checkpoint, or another file of a run, that is torn, damaged, changed or none."""


def _variables(training_model):
    groups = {
        "model": training_model.variables,
        "optimizer": training_model.optimizer.variables,
        "metrics": training_model.metrics_variables,
    }
    return {
        f"{group}/{place:04d}/{AUTO_SUFFIX.sub('', variable.path)}": variable
        for group, variables in groups.items()
        for place, variable in enumerate(variables)
        if group != "model" or not any(variable is metric for metric in groups["metrics"])
    }


def _to_numpy(variable):
    """The value as NumPy has it; half precisions without a NumPy type of their own go through float32, exactly."""
    value = np.asarray(variable)
    return value.astype("float32") if value.dtype.name == "bfloat16" else value


def save(folder, training_model, keep=KEEP) -> pathlib.Path:
    """Writes the checkpoint of the compiled and built `trainee` at its step, and removes all but the last `keep`.

    Raises:
        OSError: it cannot be written. Those that were there before are as they were.
    """
    folder = pathlib.Path(folder)
    step = int(training_model.optimizer.iterations)
    path = _path(folder, step)
    arrays = {name: _to_numpy(variable) for name, variable in _variables(training_model).items()}
    checksummed_safetensors.write(path, arrays, {"step": str(step), **_vouched(folder.parent)})
    write_text(folder / "newest", path.name)
    prune(folder, keep)
    return path


def _vouched(run):
    paths = (run / name for name in COPIED)
    copies = {p.name: base64.b64encode(zlib.compress(p.read_bytes(), 1)).decode() for p in paths if p.is_file()}
    return {"events": json.dumps(sizes(run)), **copies}


def _metadata(path) -> dict:
    """Those of a whole checkpoint; empty for any other file."""
    try:
        metadata, _ = checksummed_safetensors.read(path, pathlib.Path(path).stat().st_size)
    except (checksummed_safetensors.CorruptFileError, OSError):
        return {}
    return metadata


def vouched_at(folder, step) -> tuple[bytes, dict[str, int]]:
    """What the checkpoint of a step says of its run: the metrics.jsonl, and the sizes of TensorBoard's files.

    Raises:
        CheckpointError: it says nothing, for an older version wrote it.
    """
    if not step:
        return b"", {}
    path = _path(folder, step)
    metadata = _metadata(path)
    if not {"metrics.jsonl", "events"} <= metadata.keys():
        raise CheckpointError(f"{path} has no copy of metrics.jsonl, for an older version wrote it: begin anew.")
    return _copy(metadata, "metrics.jsonl"), json.loads(metadata["events"])


def _path(folder, step):
    return pathlib.Path(folder) / f"step-{step:08d}.safetensors"


def _copy(metadata, name):
    return zlib.decompress(base64.b64decode(metadata[name])) if name in metadata else None


def newest_copy(folder, name) -> bytes | None:
    """The copy in the newest whole checkpoint of a folder; None where there is none."""
    folder = pathlib.Path(folder)
    copies = (_copy(_metadata(path), name) for path in [*reversed(list_checkpoints(folder)), folder / BEST])
    return next((copy for copy in copies if copy is not None), None)


def newest_events(folder) -> dict[str, int]:
    """The sizes of TensorBoard's files that the newest whole checkpoint vouches for; empty where there is none."""
    metadata = (_metadata(path) for path in reversed(list_checkpoints(folder)))
    return json.loads(next((words["events"] for words in metadata if "events" in words), "{}"))


def prune(folder, keep=KEEP):
    """Removes all but the last `keep` checkpoints."""
    for old in list_checkpoints(folder)[:-keep]:
        old.unlink()


def save_best_copy(path):
    """Copies a checkpoint to best.safetensors beside it."""
    path = pathlib.Path(path)
    with atomic_write(path.with_name(BEST)) as temporary:
        temporary.write_bytes(path.read_bytes())


def list_checkpoints(folder) -> list[pathlib.Path]:
    """The checkpoints in a folder, oldest first."""
    paths = (path for path in pathlib.Path(folder).glob("step-*.safetensors") if NAME.fullmatch(path.name))
    return sorted(paths, key=lambda path: int(NAME.fullmatch(path.name)[1]))


def any_in(folder) -> bool:
    """Whether a training has left anything in a folder to go on from."""
    return bool(list_checkpoints(folder)) or (pathlib.Path(folder) / BEST).exists()


def load(path, training_model) -> int:
    """Puts a checkpoint back into `trainee` and returns its step.

    Raises:
        DamagedError: the file is torn, damaged or none.
        CheckpointError: its names, shapes or types are not those of `trainee`. Nothing is assigned in either case.
    """
    variables = _variables(training_model)
    expected = {name: _to_numpy(variable) for name, variable in variables.items()}
    try:
        # twice as much as expected still tells a checkpoint of another model from a file that means harm
        _, values = checksummed_safetensors.read(path, 2 * sum(value.nbytes for value in expected.values()) + 2**20)
    except (checksummed_safetensors.CorruptFileError, OSError) as error:
        raise CorruptCheckpointError(f"{path}: not a whole checkpoint ({error}).") from error
    different = [f"{name!r:.100}" for name in sorted(values.keys() ^ variables.keys())] or [
        f"{name}: {values[name].dtype.name} {values[name].shape} in the file, {own.dtype.name} {own.shape} in the model"
        for name, own in expected.items()
        if (values[name].dtype, values[name].shape) != (own.dtype, own.shape)
    ]
    if different:
        raise CheckpointError(f"{path}: belongs to another model; it differs in {'; '.join(different[:5])}.")
    for name, variable in variables.items():
        variable.assign(values[name].astype(np.asarray(variable).dtype))
    return int(training_model.optimizer.iterations)


def load_newest(folder, training_model) -> int:
    """Puts the newest whole checkpoint of a folder into `trainee` and returns its step; 0 where there is none.

    A damaged one is passed over with a warning, and so is one that is gone; it is kept under another name. Where one is
    missing, the best counts too.

    Raises:
        CheckpointError: the newest whole one belongs to another model.
    """
    folder = pathlib.Path(folder)
    newest, paths, loaded, step, before = folder / "newest", list_checkpoints(folder), None, 0, ""
    name = newest.read_text(encoding="utf-8", errors="replace") if newest.is_file() else None
    if newest.exists() and not NAME.fullmatch(name or ""):
        aside = set_aside(newest) if name is None else ""  # a folder
        before = f"{newest} is damaged: whether a later checkpoint was there cannot be told{aside}."
    elif name is not None and name not in {path.name for path in paths}:
        before = f"{folder}: {name!r:.100} is not there."
    for path in reversed(paths):
        try:
            step = load(path, training_model)
        except CorruptCheckpointError as error:
            before = str(error)
            path.replace(path.with_suffix(".damaged"))
        else:
            loaded = path
            break
    if before or loaded is None:
        best = _best_as_step(folder, later_than=-1 if loaded is None else step)
        if best is not None:
            before = before or f"{folder} has no checkpoint but {BEST}."
            loaded, step = best, load(best, training_model)
    if before:
        warnings.warn(f"{before} The training goes on from step {step:,}.", stacklevel=2)
    if loaded is None:
        newest.unlink(missing_ok=True)
    elif name != loaded.name:  # a kill came before it was written, or it was wrong
        write_text(newest, loaded.name)
    return step


def _best_as_step(folder, later_than):
    """Copies the best to the name of its step, if it is whole and of a later one; else None."""
    best = folder / BEST
    step = int(_metadata(best).get("step", -1))
    if step <= later_than:
        return None
    path = _path(folder, step)
    with atomic_write(path) as temporary:
        temporary.write_bytes(best.read_bytes())
    return path

"""Everything that training needs to go on, in one safetensors file: `checkpoints/step-00001000.safetensors`.

    model/...      every variable of the training model: weights, seeds of dropout, the carried state
    optimizer/...  moments, and the step, which is the clock of data, learning rate and seeds
    metrics/...    the sums of the logging interval that was open

A name is a number (the variable's place) and the variable's path, so two layers of one name stay apart. Of a path the
numbers are left out by which Keras tells apart what has no name of its own: a second model in one process has others.
`newest` holds the name of the last one, so that it is missed if it is gone; best.safetensors is a copy of the one
that did best in validation.
"""

import pathlib
import re
import warnings

import numpy as np

from keras_seq.training import sealed
from keras_seq.training.files import replacing, write_text

KEEP = 2
BEST = "best.safetensors"
AUTOMATIC = re.compile(r"_\d+(?=[/_]|$)")


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or a run that goes on otherwise than it began."""


class DamagedError(CheckpointError):
    """A checkpoint that is torn, damaged, or none."""


def _variables(trainee):
    groups = {
        "model": trainee.variables,
        "optimizer": trainee.optimizer.variables,
        "metrics": trainee.metrics_variables,
    }
    return {
        f"{group}/{place:04d}/{AUTOMATIC.sub('', variable.path)}": variable
        for group, variables in groups.items()
        for place, variable in enumerate(variables)
        if group != "model" or not any(variable is metric for metric in groups["metrics"])
    }


def _plain(variable):
    """The value as NumPy has it; half precisions without a NumPy type of their own go through float32, exactly."""
    value = np.asarray(variable)
    return value.astype("float32") if value.dtype.name == "bfloat16" else value


def save(folder, trainee, keep=KEEP) -> pathlib.Path:
    """Writes the checkpoint of the compiled and built `trainee` at its step, and removes all but the last `keep`.

    Raises:
        OSError: it cannot be written. Those that were there before are as they were.
    """
    folder = pathlib.Path(folder)
    step = int(trainee.optimizer.iterations)
    path = folder / f"step-{step:08d}.safetensors"
    arrays = {name: _plain(variable) for name, variable in _variables(trainee).items()}
    sealed.write(path, arrays, {})
    write_text(folder / "newest", path.name)
    prune(folder, keep)
    return path


def prune(folder, keep=KEEP):
    """Removes all but the last `keep` checkpoints."""
    for old in found(folder)[:-keep]:
        old.unlink()


def keep_best(path):
    """Copies a checkpoint to best.safetensors beside it."""
    path = pathlib.Path(path)
    with replacing(path.with_name(BEST)) as temporary:
        temporary.write_bytes(path.read_bytes())


def found(folder) -> list[pathlib.Path]:
    """The checkpoints in a folder, oldest first."""
    paths = (p for p in pathlib.Path(folder).glob("step-*.safetensors") if re.fullmatch(r"step-\d{8,}", p.stem))
    return sorted(paths, key=lambda path: int(path.stem.removeprefix("step-")))


def load(path, trainee) -> int:
    """Puts a checkpoint back into `trainee` and returns its step.

    Raises:
        DamagedError: the file is torn, damaged or none.
        CheckpointError: its names, shapes or types are not those of `trainee`. Nothing is assigned in either case.
    """
    variables = _variables(trainee)
    expected = {name: _plain(variable) for name, variable in variables.items()}
    try:
        # twice as much as expected still tells a checkpoint of another model from a file that means harm
        _, values = sealed.read(path, 2 * sum(value.nbytes for value in expected.values()) + 2**20)
    except (sealed.Broken, OSError) as error:
        raise DamagedError(f"{path}: not a whole checkpoint ({error}).") from error
    different = [f"{name!r:.100}" for name in sorted(values.keys() ^ variables.keys())] or [
        f"{name}: {values[name].dtype.name} {values[name].shape} in the file, {own.dtype.name} {own.shape} in the model"
        for name, own in expected.items()
        if (values[name].dtype, values[name].shape) != (own.dtype, own.shape)
    ]
    if different:
        raise CheckpointError(f"{path}: belongs to another model; it differs in {'; '.join(different[:5])}.")
    for name, variable in variables.items():
        variable.assign(values[name].astype(np.asarray(variable).dtype))
    return int(trainee.optimizer.iterations)


def load_newest(folder, trainee) -> int:
    """Puts the newest whole checkpoint of a folder into `trainee` and returns its step; 0 where there is none.

    A damaged one is passed over with a warning, and so is one that is gone; it is kept under another name.

    Raises:
        CheckpointError: the newest whole one belongs to another model.
    """
    folder = pathlib.Path(folder)
    newest, paths, before, step = folder / "newest", found(folder), "", 0
    name = newest.read_text(encoding="utf-8", errors="replace") if newest.exists() else None
    if name is not None and name not in {path.name for path in paths}:
        before = f"{folder}: {name!r:.100} is not there."
    for path in reversed(paths):
        try:
            step = load(path, trainee)
        except DamagedError as error:
            before = str(error)
            path.replace(path.with_suffix(".damaged"))
        else:
            break
    if before:
        warnings.warn(f"{before} The training goes on from step {step:,}.", stacklevel=2)
        newest.unlink(missing_ok=True)
    elif name is not None and name != path.name:  # a kill came before it was written
        write_text(newest, path.name)
    return step

"""Everything that training needs to go on, in one safetensors file: `checkpoints/step-00001000.safetensors`.

    model/...      every variable of the training model: weights, seeds of dropout, the carried state
    optimizer/...  moments, and the step, which is the clock of data, learning rate and seeds
    metrics/...    the sums of the logging interval that was open

A name is a number (the variable's place) and the variable's path, so two layers of one name stay apart. Of a path the
numbers are left out by which Keras tells apart what has no name of its own: a second model in one process has others.
"""

import pathlib
import re

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from keras_seq.training.files import replacing

KEEP = 2
AUTOMATIC = re.compile(r"_\d+(?=/|$)")


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or that belongs to another model."""


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


def save(folder, trainee) -> pathlib.Path:
    """Writes the checkpoint of the compiled and built `trainee` at its step, and removes all but the last two."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    step = int(trainee.optimizer.iterations)
    path = folder / f"step-{step:08d}.safetensors"
    with replacing(path) as temporary:
        save_file({name: _plain(variable) for name, variable in _variables(trainee).items()}, temporary)
    for old in found(folder)[:-KEEP]:
        old.unlink()
    return path


def found(folder) -> list[pathlib.Path]:
    """The checkpoints in a folder, oldest first."""
    paths = (p for p in pathlib.Path(folder).glob("step-*.safetensors") if re.fullmatch(r"step-\d{8,}", p.stem))
    return sorted(paths, key=lambda path: int(path.stem.removeprefix("step-")))


def load(path, trainee) -> int:
    """Puts a checkpoint back into `trainee` and returns its step.

    Raises:
        CheckpointError: the file is torn, or its names or shapes are not those of `trainee`. Nothing is assigned then.
    """
    try:
        values = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a whole checkpoint ({error}).") from error
    variables = _variables(trainee)
    different = sorted(values.keys() ^ variables.keys()) or [
        f"{name}: {values[name].shape} in the file, {tuple(variable.shape)} in the model"
        for name, variable in variables.items()
        if values[name].shape != tuple(variable.shape)
    ]
    if different:
        raise CheckpointError(f"{path}: belongs to another model; it differs in {'; '.join(different[:5])}.")
    for name, variable in variables.items():
        variable.assign(values[name].astype(np.asarray(variable).dtype))
    return int(trainee.optimizer.iterations)

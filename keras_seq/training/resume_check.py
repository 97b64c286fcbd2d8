"""Check that a run can be resumed: its config must equal that in config.json, except for the names in MUTABLE.

    diff(config.json, the config now)  <=  MUTABLE, and no name in GROW_ONLY is smaller

A part of RECORDED (run_settings.py) that an older run did not record is not compared.

If the number of steps is raised on resume, the decay is stretched, so the learning rate jumps up at that step. The
result differs from that of a run that had this length from the start.
"""

import json
import pathlib
import warnings

from keras_seq.files import atomic_write, set_aside
from keras_seq.training import checkpoints, checksummed_json
from keras_seq.training.checkpoints import CheckpointError, CorruptCheckpointError
from keras_seq.training.run_settings import RECORDED

INTERVALS = {
    "log_every",
    "validate_every",
    "checkpoint_every",
    "checkpoint_every_seconds",
    "max_checkpoints_to_keep",
    "patience",
}
GROW_ONLY = {"tokens", "steps", "total_steps", "epochs", "num_seeds"}
RECORDED_LATER = {*RECORDED, "model", "tokenizer", "validation"}  # parts that runs of keras_seq 0.2.0 may not have
OF_LIBRARIES = ("optimizer", "loss", "architecture")  # parts that have the arguments of Keras's own classes
MUTABLE = INTERVALS | GROW_ONLY | {"on_nan", "tracker"}
VERSION_KEYS = {"commit", "keras", "tensorflow", "jax", "torch", "numpy", "python"}  # others may change the last bits
MACHINE_KEYS = {"backend", "cores", "threads", "processor", "devices"}  # and so may other backends and machines


def flatten(config: dict, prefix: str = "") -> dict:
    """Return the leaves of a nested config by dotted name, as JSON values.

    Args:
        config: Nested config.
        prefix: Prefix of all names.
    """
    leaves = {}
    for name, value in config.items():
        leaves |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return json.loads(json.dumps(leaves))


def diff(before: dict, now: dict) -> dict[str, tuple]:
    """Return the dotted names under which two nested configs differ.

    Args:
        before: The first config.
        now: The second config.

    Returns:
        Pairs of values by name; None stands for a missing one.
    """
    before, now = flatten(before), flatten(now)
    names = dict.fromkeys([*before, *now])
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


def leaf_name(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


def format_diff(differences: dict[str, tuple]) -> str:
    """Return the result of `diff` as text for a message."""
    return "; ".join(f"{name} was {before!r:.80} and is {now!r:.80}" for name, (before, now) in differences.items())


def read_config(folder: str | pathlib.Path) -> dict:
    """Return config.json of a run; a corrupt or missing one is restored from a checkpoint, with a warning.

    Args:
        folder: Folder of the run.

    Returns:
        The config.

    Raises:
        CheckpointError: If it has another schema number, or is corrupt or missing and no checkpoint has a copy of it.
    """
    path = pathlib.Path(folder) / "config.json"
    try:
        return checksummed_json.read(path)
    except (CorruptCheckpointError, FileNotFoundError) as error:
        problem = str(error) if isinstance(error, CorruptCheckpointError) else f"{path} is missing"
        copy = checkpoints.latest_copy(path.parent / "checkpoints", path.name)
        if copy is None:
            remedy = f"remove {path.parent} to train this run anew"
            raise CheckpointError(f"{problem}, and no checkpoint there has a copy of it: {remedy}.") from error
    warnings.warn(f"{problem}; it is restored from a checkpoint{set_aside(path)}.", stacklevel=3)
    with atomic_write(path) as temporary:
        temporary.write_bytes(copy)
    return checksummed_json.read(path)


def check_resumable(folder: str | pathlib.Path, config: dict):
    """Check that a run with checkpoints has an equal config; warn about other versions, backend or machine.

    Args:
        folder: Folder of the run.
        config: Config that the run is resumed with. Its "experiment" part is ignored: it lists what other runs there
            are.

    Raises:
        CheckpointError: If the configs differ in a name that is not in MUTABLE, or one in GROW_ONLY is smaller.
    """
    folder = pathlib.Path(folder)
    if not checkpoints.has_checkpoints(folder / "checkpoints"):
        return
    before, now = ({**part, "experiment": {}} for part in (read_config(folder), config))
    for name in RECORDED_LATER - (before.keys() & now.keys()):
        before.pop(name, None), now.pop(name, None)
    differences = diff(before, now)
    versions, machine = (
        {name: pair for name, pair in differences.items() if leaf_name(name) in keys}
        for keys in (VERSION_KEYS, MACHINE_KEYS)
    )
    other = {name: pair for name, pair in differences.items() if name not in versions and name not in machine}
    unknown = flatten(before).keys() ^ flatten(now).keys()
    other = {name: pair for name, pair in other.items() if name not in unknown or not _is_new(name, bool(versions))}
    refused = {name: pair for name, pair in other.items() if not _may_change(name, *pair)}
    if refused:
        raise CheckpointError(
            f"{folder} was started with another config: {format_diff(refused)}. Resume it with the same values, or "
            "start a new run."
        )
    if versions:
        warnings.warn(f"{folder} resumes with other versions: {format_diff(versions)}.", stacklevel=3)
    if machine:
        warnings.warn(
            f"{folder} resumes on another backend, machine or other cores: {format_diff(machine)}; the last bits may "
            "differ from an uninterrupted run.",
            stacklevel=3,
        )


def _is_new(name, other_versions):
    """Return whether a name that one of the configs lacks may be that of an option of later versions."""
    part = name.partition(".")[0]
    return part == "train" or (other_versions and part in OF_LIBRARIES)


def _may_change(name, before, now):
    if leaf_name(name) in GROW_ONLY:
        return None not in (before, now) and now >= before
    return leaf_name(name) in MUTABLE

"""Whether a run can go on: what it was begun with has to be what it goes on with.

    differences(config.json, the settings now)  <=  MAY_CHANGE, and no length is smaller

A run with more steps goes on from its last checkpoint with the learning rate that a run of that many steps from the
beginning would have there: the decay ends later, so the rate jumps up to the later line. It is not the run that
it would have been with as many steps from the beginning, whose first steps had higher rates.
"""

import json
import pathlib
import warnings

from keras_seq.atomic_files import atomic_write, set_aside
from keras_seq.training import checkpoints, checksummed_json
from keras_seq.training.checkpoints import CheckpointError, CorruptCheckpointError

INTERVALS = {
    "log_every",
    "validate_every",
    "checkpoint_every",
    "checkpoint_every_seconds",
    "max_checkpoints_to_keep",
    "patience",
}
GROW_ONLY = {"tokens", "steps", "passes", "seeds"}  # these may only grow
MUTABLE = INTERVALS | GROW_ONLY | {"on_nan"}
VERSIONS = {"commit", "keras", "tensorflow", "numpy", "python"}  # other ones may give other last bits
MACHINE = {"cores", "threads", "processor"}  # and so may these


def flatten(settings, prefix=""):
    """The leaves of nested settings under dotted names, as JSON has them."""
    found = {}
    for name, value in settings.items():
        found |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return json.loads(json.dumps(found))


def diff(before, now) -> dict:
    """The dotted names under which two nested settings differ, with both values; None where there is none."""
    before, now = flatten(before), flatten(now)
    names = dict.fromkeys([*before, *now])
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


def leaf_name(name) -> str:
    """Of a dotted name."""
    return name.rpartition(".")[2]


def format_diff(different) -> str:
    """Differences in words."""
    return "; ".join(f"{name} was {before!r:.80} and is {now!r:.80}" for name, (before, now) in different.items())


def begun_with(folder) -> dict:
    """What config.json says that the run in a folder was begun with; written again from a checkpoint if damaged.

    Raises:
        CheckpointError: it is damaged or gone, and there is no checkpoint with a copy of it.
    """
    path = pathlib.Path(folder) / "config.json"
    try:
        return checksummed_json.read(path)
    except (CorruptCheckpointError, FileNotFoundError) as error:
        fault = str(error) if isinstance(error, CorruptCheckpointError) else f"{path} is gone"
        copy = checkpoints.newest_copy(path.parent / "checkpoints", path.name)
        if copy is None:
            remedy = f"begin anew; or, beside other runs, remove {path.parent} to have it trained anew"
            raise CheckpointError(f"{fault}, and no checkpoint there has a copy of it: {remedy}.") from error
    warnings.warn(f"{fault}; it is written again from a checkpoint{set_aside(path)}.", stacklevel=3)
    with atomic_write(path) as temporary:
        temporary.write_bytes(copy)
    return checksummed_json.read(path)


def check_resumable(folder, settings):
    """Warns where a run goes on under other versions, or on another machine.

    Args:
        folder: of the run.
        settings: what config.json will say. The experiment's own options are not looked at: they say what other runs
            there are.

    Raises:
        CheckpointError: the run in the folder has checkpoints, and was begun with something else that matters.
    """
    folder = pathlib.Path(folder)
    if not checkpoints.any_in(folder / "checkpoints"):
        return
    different = diff({**begun_with(folder), "experiment": {}}, {**settings, "experiment": {}})
    versions, machine = ({n: pair for n, pair in different.items() if leaf_name(n) in of} for of in (VERSIONS, MACHINE))
    other = {name: pair for name, pair in different.items() if name not in versions and name not in machine}
    refused = {name: pair for name, pair in other.items() if not _may_change(name, *pair)}
    if refused:
        raise CheckpointError(
            f"{folder} was begun otherwise: {format_diff(refused)}. Go on as it began, or begin anew."
        )
    if versions:
        warnings.warn(f"{folder} goes on under other versions: {format_diff(versions)}.", stacklevel=3)
    if machine:
        bits = "the last bits may be others than without the stop"
        warnings.warn(
            f"{folder} goes on on another machine or other cores: {format_diff(machine)}; {bits}.", stacklevel=3
        )


def _may_change(name, before, now):
    if leaf_name(name) in GROW_ONLY:
        return None not in (before, now) and now >= before
    return leaf_name(name) in MUTABLE

"""Whether a run can go on: what it was begun with has to be what it goes on with.

    differences(config.json, the settings now)  <=  MAY_CHANGE

A run with more steps goes on from its last checkpoint with the learning rate that a run of that many steps from the
beginning would have there: the decay ends later, so the rate jumps up to the later line. It is not the run that
it would have been with as many steps from the beginning, whose first steps had higher rates.
"""

import json
import pathlib
import warnings

from keras_seq.training import checkpoints
from keras_seq.training.checkpoints import CheckpointError

INTERVALS = {"log_every", "validate_every", "checkpoint_every", "checkpoint_seconds", "keep_checkpoints", "patience"}
LENGTHS = {"tokens", "steps", "passes", "seeds"}  # these may only grow
MAY_CHANGE = INTERVALS | LENGTHS | {"on_nan"}
SURROUNDINGS = {"commit", "keras", "tensorflow", "numpy", "python"}  # other ones may give other last bits


def leaves(settings, prefix=""):
    """The leaves of nested settings under dotted names, as JSON has them."""
    found = {}
    for name, value in settings.items():
        found |= leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return json.loads(json.dumps(found))


def differences(before, now) -> dict:
    """The dotted names under which two nested settings differ, with both values; None where there is none."""
    before, now = leaves(before), leaves(now)
    names = dict.fromkeys([*before, *now])
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


def last_name(name) -> str:
    """Of a dotted name."""
    return name.rpartition(".")[2]


def told(different) -> str:
    """Differences in words."""
    return "; ".join(f"{name} was {before!r:.80} and is {now!r:.80}" for name, (before, now) in different.items())


def check(folder, settings):
    """Warns where a run goes on under other versions.

    Args:
        folder: of the run.
        settings: what config.json will say. The experiment's own options are not looked at: they say what other runs
            there are.

    Raises:
        CheckpointError: the run in the folder has checkpoints, and was begun with something else that matters.
    """
    path = pathlib.Path(folder) / "config.json"
    if not path.exists() or not checkpoints.found(path.parent / "checkpoints"):
        return
    try:
        begun = json.loads(path.read_text(encoding="utf-8"))
        different = differences({**begun, "experiment": {}}, {**settings, "experiment": {}})
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} holds no settings: the run cannot go on; begin anew.") from error
    around = {name: pair for name, pair in different.items() if last_name(name) in SURROUNDINGS}
    refused = {n: pair for n, pair in different.items() if n not in around and last_name(n) not in MAY_CHANGE}
    if refused:
        raise CheckpointError(f"{path.parent} was begun otherwise: {told(refused)}. Go on as it began, or begin anew.")
    if around:
        warnings.warn(f"{path.parent} goes on under other versions: {told(around)}.", stacklevel=3)

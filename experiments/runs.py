"""Where the runs of an experiment are, and what they are begun and gone on with.

    LOG_DIR/EXPERIMENT/UTC-TIME/RUN/config.json        {"experiment": the settings of the command line, ...}

`--resume LOG_DIR/EXPERIMENT/UTC-TIME`, or one of the runs in it, takes the settings from there and goes on with what
is not finished. Options given beside it may make the runs longer or change how often they log, validate and write
checkpoints; where they are longer, the finished ones go on too.
"""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys

from experiments.startup import command_line
from experiments.stopped import goes_to
from keras_seq import training
from keras_seq.training.alone import alone
from keras_seq.training.begun import LENGTHS, MAY_CHANGE, differences, last_name, leaves, told


def begin(settings, experiment, description, arguments, tiny):
    """The settings of a command line, and the folder that its runs go to.

    Args:
        settings: a frozen dataclass with the fields `log_dir`, `resume` and `smoke`.
        experiment: its name, as in `python -m experiments.NAME`.
        description: what --help says first.
        arguments: the command line, None for that of the process.
        tiny: a function from settings to the same at sizes that take seconds, for `--smoke`.

    Raises:
        ValueError: an option that is unknown or has no such value; a folder to go on with that holds no such run, or
            whose runs were begun with another value of an option that has to stay; a file where a folder has to be.
        BlockingIOError: an option differs, and another process trains in the folder to go on with.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    script = f"experiments.{experiment}"
    if (resumed := _resumed(arguments)) is not None:
        folder = pathlib.Path(resumed)
        folder = folder.parent if (folder / "config.json").exists() else folder
        begun = settings_in(folder, settings)
        goes_to(folder)
        return changed(folder, begun, command_line(settings, script, description, arguments, begun)), folder
    given = command_line(settings, script, description, arguments)
    time = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    folder = pathlib.Path(given.log_dir) / experiment / time
    if folder.exists():
        raise ValueError(f"{folder} is there already: another run began in this second. Start again.")
    there = next(place for place in folder.parents if os.path.lexists(place))
    if not there.is_dir():
        raise ValueError(f"--log-dir {given.log_dir}: {there} is no folder; expected one, or a name that is free.")
    goes_to(folder)
    return tiny(given) if given.smoke else given, folder


def _resumed(arguments) -> str | None:
    """What a command line says after --resume."""
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if name == "--resume":
            return value or next(words, None)
    return None


def changed(folder: pathlib.Path, begun, given):
    """The settings to go on with, written to the runs of a folder where they differ from those begun with.

    Raises:
        ValueError: an option differs that has to stay, or one that may only grow is smaller.
        BlockingIOError: an option differs, and another process trains one of the runs.
    """
    given = dataclasses.replace(given, resume=begun.resume, log_dir=begun.log_dir)
    different = differences(dataclasses.asdict(begun), dataclasses.asdict(given))
    longer = {name: pair for name, pair in different.items() if last_name(name) in LENGTHS}
    refused = {name: pair for name, pair in different.items() if last_name(name) not in MAY_CHANGE}
    refused |= {name: (before, now) for name, (before, now) in longer.items() if now < before}
    if refused:
        may = ", ".join(sorted(name for name in leaves(dataclasses.asdict(begun)) if last_name(name) in MAY_CHANGE))
        raise ValueError(f"--resume {folder}: {told(refused)}. What may change: {may}; lengths only upwards.")
    if different:
        _write_changes(folder, given, runs_are_longer=any(last_name(name) != "seeds" for name in longer))
        print(f"Going on otherwise than begun: {told(different)}.")
    return given


def _write_changes(folder, given, runs_are_longer):
    configs = {path: read(path) for path in folder.glob("*/config.json")}
    with contextlib.ExitStack() as held:
        for path in configs:
            held.enter_context(alone(path.parent))
        if runs_are_longer:
            for path in [folder / "plan.json", *folder.glob("*/result.json")]:
                path.unlink(missing_ok=True)
        for path, begun_with in configs.items():
            training.write_json(path, {**begun_with, "experiment": dataclasses.asdict(given)})


def settings_in(folder: pathlib.Path, settings):
    """The settings that the runs in a folder were begun with."""
    configs = sorted(folder.glob("*/config.json"))
    if not configs:
        raise ValueError(f"--resume {folder}: no run with a config.json is there; expected LOG_DIR/EXPERIMENT/TIME.")
    try:
        return revive(settings, read(configs[0])["experiment"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"--resume {folder}: {configs[0]} does not hold the settings of this experiment.") from error


def read(path: pathlib.Path) -> dict:
    """The JSON in a file of a run.

    Raises:
        ValueError: it is none; the error names the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged, it holds no JSON: remove it to have it written again.") from error


def same_corpus(folder: pathlib.Path, corpus):
    """Raises a ValueError where the runs in a folder were begun with another text."""
    for path in folder.glob("*/config.json"):
        try:
            begun_with = read(path)["corpus"]["sha256"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} does not say which text its run was begun with: begin anew.") from error
        if begun_with != corpus.sha256:
            raise ValueError(
                f"{folder} was begun with a corpus of sha256 {begun_with}, but {corpus.name} now has {corpus.sha256}: "
                "go on with the same text, or begin anew."
            )


def revive(kind, values):
    """A dataclass from what `dataclasses.asdict` and JSON made of it."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(values.keys() - fields.keys())
    if unknown:
        raise ValueError(f"The settings to go on with have {', '.join(unknown)}, which this version does not know.")
    revived = {}
    for name, value in values.items():
        part = fields[name].type
        if dataclasses.is_dataclass(part):
            value = revive(part, value)
        revived[name] = tuple(value) if isinstance(value, list) else value
    return kind(**revived)


def finished(run: pathlib.Path) -> dict | None:
    """What result.json of a run says, or None where the run is still to be trained."""
    path = run / "result.json"
    return read(path) if path.exists() else None


def config(settings, name, model, train, **further):
    """What config.json says of one run.

    Args:
        settings: those of the experiment, a dataclass.
        name: what the model is called.
        model: the dataclass that it was built from.
        train: the `Train` as it is used, a dict.
        further: what else tells this run from others: its seed, its corpus.
    """
    return {
        "experiment": dataclasses.asdict(settings),
        "model": {"name": name, **dataclasses.asdict(model)},
        "train": train,
        **further,
        "versions": versions(),
    }


def versions():
    """What the figures depend on besides the settings."""
    names = ("keras_seq", "keras", "tensorflow", "numpy")
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=pathlib.Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = None
    found = {name: importlib.metadata.version(name) for name in names}
    return {**found, "python": platform.python_version(), "commit": commit}

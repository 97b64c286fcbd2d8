"""Where the runs of an experiment are, and what they are begun and gone on with.

    LOG_DIR/EXPERIMENT/UTC-TIME/RUN/config.json        {"experiment": the settings of the command line, ...}

`--resume LOG_DIR/EXPERIMENT/UTC-TIME`, or one of the runs in it, takes the settings from there and goes on with what
is not finished. Options given beside it may make the runs longer or change how often they log, validate and write
checkpoints; where they are longer, the finished ones go on too. One process at a time works in such a folder.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys

from experiments.folders import begun_folder
from experiments.startup import command_line
from experiments.stopped import goes_to
from keras_seq.atomic_files import leftovers, remove_leftovers, remove_partial_files
from keras_seq.training import checkpoints, checksummed_json
from keras_seq.training.resume_check import GROW_ONLY, MUTABLE, diff, flatten, format_diff, leaf_name, read_config
from keras_seq.training.run_lock import lock_run


@contextlib.contextmanager
def begin(settings, experiment, description, arguments, tiny):
    """Gives the settings of a command line, and the folder that its runs go to; the folder is held until the end.

    Args:
        settings: a frozen dataclass with the fields `log_dir`, `resume` and `smoke`.
        experiment: its name, as in `python -m experiments.NAME`.
        description: what --help says first.
        arguments: the command line, None for that of the process.
        tiny: a function from settings to the same at sizes that take seconds, for `--smoke`.

    Raises:
        ValueError: an option that is unknown or has no such value; a folder to go on with that holds no such run, or
            whose runs were begun with another value of an option that has to stay; a file where a folder has to be.
        BlockingIOError: another process works in the folder to go on with.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    script = f"experiments.{experiment}"
    if (resumed := _resumed(arguments)) is not None:
        folder = pathlib.Path(resumed)
        folder = folder.parent if _is_run(folder) else folder
        if not runs_in(folder):
            nothing = "no run with a config.json is there, so nothing was trained"
            raise ValueError(f"--resume {folder}: {nothing}: expected LOG_DIR/EXPERIMENT/TIME; or begin anew.")
        with _held(folder):
            _tidy(folder)
            goes_to(folder)
            begun = settings_in(folder, settings)
            yield changed(folder, begun, command_line(settings, script, description, arguments, begun)), folder
        return
    given = command_line(settings, script, description, arguments)
    parent = pathlib.Path(given.log_dir) / experiment
    there = next(place for place in (parent, *parent.parents) if os.path.lexists(place))
    if not there.is_dir():
        raise ValueError(f"--log-dir {given.log_dir}: {there} is no folder; expected one, or a name that is free.")
    given = tiny(given) if given.smoke else given
    with begun_folder(parent) as folder, _held(folder):
        goes_to(folder)
        yield given, folder


@contextlib.contextmanager
def _held(folder):
    with lock_run(folder):
        try:
            yield
        finally:
            (folder / ".lock").unlink(missing_ok=True)  # whoever has opened it sees that it is gone


def _is_run(folder):
    return (folder / "config.json").exists() or checkpoints.has_checkpoints(folder / "checkpoints")


def runs_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folders of the runs that were begun."""
    return sorted(run for run in folder.glob("*/") if _is_run(run))


def _tidy(folder):
    """Removes what kills have left."""
    remove_partial_files(folder)
    for run in runs_in(folder):
        if leftovers(run) or (run / ".pid").exists():
            with lock_run(run):
                remove_leftovers(run)


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
    different = diff(dataclasses.asdict(begun), dataclasses.asdict(given))
    longer = {name: pair for name, pair in different.items() if leaf_name(name) in GROW_ONLY}
    refused = {name: pair for name, pair in different.items() if leaf_name(name) not in MUTABLE}
    refused |= {name: (before, now) for name, (before, now) in longer.items() if now < before}
    if refused:
        may = ", ".join(sorted(name for name in flatten(dataclasses.asdict(begun)) if leaf_name(name) in MUTABLE))
        raise ValueError(f"--resume {folder}: {format_diff(refused)}. What may change: {may}; lengths only upwards.")
    if different:
        _write_changes(folder, given, runs_are_longer=any(leaf_name(name) != "seeds" for name in longer))
        print(f"Going on otherwise than begun: {format_diff(different)}.")
    return given


def _write_changes(folder, given, runs_are_longer):
    begun = {run: read_config(run) for run in runs_in(folder)}
    with contextlib.ExitStack() as held:
        for run in begun:
            held.enter_context(lock_run(run))
        if runs_are_longer:
            for path in folder.glob("*/result.json"):
                path.unlink(missing_ok=True)
        for run, config in begun.items():
            checksummed_json.write(run / "config.json", {**config, "experiment": dataclasses.asdict(given)})


def settings_in(folder: pathlib.Path, settings):
    """The settings that the runs in a folder were begun with."""
    fault = None
    for run in runs_in(folder):
        try:
            return revive(settings, read_config(run)["experiment"])
        except checkpoints.CheckpointError as error:
            fault = fault or error
        except (KeyError, TypeError, AttributeError) as error:
            told = f"{run / 'config.json'} does not hold the settings of this experiment"
            raise ValueError(f"--resume {folder}: {told}.") from error
    raise fault


def same_corpus(folder: pathlib.Path, corpus):
    """Raises a ValueError where the runs in a folder were begun with another text."""
    for run in runs_in(folder):
        try:
            sha256 = read_config(run)["corpus"]["sha256"]
        except (KeyError, TypeError) as error:
            path = run / "config.json"
            raise ValueError(f"{path} does not say which text its run was begun with: begin anew.") from error
        if sha256 != corpus.sha256:
            raise ValueError(
                f"{folder} was begun with a corpus of sha256 {sha256}, but {corpus.name} now has {corpus.sha256}: "
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
        "environment": environment(),
    }


def environment():
    """What the last bits depend on besides: sums are split by the cores that share them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = {f"TF_NUM_{kind}_THREADS": os.environ.get(f"TF_NUM_{kind}_THREADS") for kind in ("INTRAOP", "INTEROP")}
    set_to = ", ".join(f"{name}={value}" for name, value in threads.items() if value)
    return {"cores": cores, "threads": set_to or "one a core", "processor": _processor()}


def _processor():
    """Its name, as far as the system says it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


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

"""Run folders of the experiments: start a new one or resume, read and change its config.

    LOG_DIR/EXPERIMENT/UTC-TIME-CORPUS/RUN/config.json    {"schema": 2, "experiment": config of the command line, ...}

`--resume LOG_DIR/EXPERIMENT/FOLDER`, or a run folder in it, reads the config from there and continues the unfinished
runs. Options given beside it may make the runs longer or change the logging, validation and checkpoint intervals; when
the runs become longer, the finished ones are trained further too. The folder is locked: one process at a time.
"""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.frame.folders import corpus_label, timestamped_folder
from experiments.frame.interruption import run_folders
from experiments.frame.jobs import is_worker
from experiments.frame.machine import Machine, first_process_speaks
from experiments.frame.settings import replaced
from experiments.frame.startup import command_line
from keras_seq.data import Corpus
from keras_seq.files import leftovers, remove_leftovers, remove_partial_files
from keras_seq.training import checkpoints, checksummed_json, processes
from keras_seq.training.resume_check import GROW_ONLY, MUTABLE, diff, flatten, format_diff, leaf_name, read_config
from keras_seq.training.run_lock import lock_run

SETTINGS = "settings.json"  # the config, where runs are shared by several processes: before the first of them begins


@contextlib.contextmanager
def start_or_resume(
    config_class: type,
    experiment: str,
    description: str,
    arguments: Sequence[str] | None,
    smoke: dict,
    machine: Machine | None = None,
) -> Iterator[tuple[Any, pathlib.Path]]:
    """Parse the command line, yield the config and the folder of the runs, and lock that folder until the end.

    `config_class` has the fields `log_dir`, `resume` and `smoke`; `smoke` are the changes for `settings.replaced`.
    With `machine.jobs`, other processes may train in the folder too.
    """
    machine = machine or Machine()
    is_shared = machine.jobs is not None or is_worker()
    lock = _registered if is_shared else _locked
    arguments = sys.argv[1:] if arguments is None else arguments
    script = f"experiments.{experiment}"
    if (resumed := _resume_argument(arguments)) is not None:
        folder = pathlib.Path(resumed)
        folder = folder.parent if _is_run(folder) else folder
        if not list_runs(folder) and not (folder / SETTINGS).exists():
            expected = "LOG_DIR/EXPERIMENT/TIME, or start a new run"
            raise ValueError(f"--resume {folder}: it has no run with a config.json; expected {expected}.")
        machine.use_devices()
        with first_process_speaks(), processes.private_folder(folder) as folder, lock(folder):
            if not is_shared:
                _remove_leftovers(folder)
            saved = load_config(folder, config_class)
            config = command_line(config_class, script, description, arguments, saved, Machine)
            machine.check(config, arguments)
            yield _apply_changes(folder, saved, config), folder
        return
    config = command_line(config_class, script, description, arguments, further=Machine)
    if config.smoke:  # tiny sizes of what is not given
        config = command_line(config_class, script, description, arguments, replaced(config_class(), smoke), Machine)
    parent = pathlib.Path(config.log_dir) / experiment
    nearest = next(path for path in (parent, *parent.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise ValueError(f"--log-dir {config.log_dir}: {nearest} is not a folder; expected a folder or an unused name.")
    machine.use_devices()
    machine.check(config, arguments)
    label = corpus_label(config)
    new_folder = timestamped_folder(parent, label) if processes.is_first() else contextlib.nullcontext(parent / "new")
    with first_process_speaks(), new_folder as folder, processes.private_folder(folder) as folder, lock(folder):
        if is_shared:
            checksummed_json.write(folder / SETTINGS, {"experiment": dataclasses.asdict(config)})
        yield config, folder


@contextlib.contextmanager
def _registered(folder):
    """Name the folder in the command to resume."""
    run_folders.append(folder)
    yield


@contextlib.contextmanager
def _locked(folder):
    with lock_run(folder), _registered(folder):
        try:
            yield
        finally:
            (folder / ".lock").unlink(missing_ok=True)  # a process that has it open notices that it was removed


def _is_run(folder):
    return (folder / "config.json").exists() or checkpoints.has_checkpoints(folder / "checkpoints")


def list_runs(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the run folders in `folder` that have a config.json or a checkpoint, sorted by name."""
    return sorted(run for run in folder.glob("*/") if _is_run(run))


def _remove_leftovers(folder):
    """Remove the temporary files of processes that were killed."""
    remove_partial_files(folder)
    for run in list_runs(folder):
        if leftovers(run) or (run / ".pid").exists():
            with lock_run(run):
                remove_leftovers(run)


def _resume_argument(arguments) -> str | None:
    """Return the value of --resume on a command line, or None."""
    for word, next_word in itertools.zip_longest(arguments, arguments[1:]):
        name, _, value = word.partition("=")
        if name == "--resume":
            return value or next_word
    return None


def _apply_changes(folder, saved, config):
    """Check the options changed on resume, write them to the config.json of every run, and return the config."""
    config = dataclasses.replace(config, resume=saved.resume, log_dir=saved.log_dir)
    changes = diff(dataclasses.asdict(saved), dataclasses.asdict(config))
    longer = {name: pair for name, pair in changes.items() if leaf_name(name) in GROW_ONLY}
    refused = {name: pair for name, pair in changes.items() if leaf_name(name) not in MUTABLE}
    refused |= {name: (before, now) for name, (before, now) in longer.items() if now < before}
    if refused:
        mutable = ", ".join(sorted(name for name in flatten(dataclasses.asdict(saved)) if leaf_name(name) in MUTABLE))
        raise ValueError(
            f"--resume {folder}: {format_diff(refused)}. Options that can change: {mutable}; lengths can only grow."
        )
    if not changes:
        return config
    run_configs = {run: read_config(run) for run in list_runs(folder)}
    with contextlib.ExitStack() as locks:
        for run in run_configs:
            locks.enter_context(lock_run(run))
        if any(leaf_name(name) != "num_seeds" for name in longer):  # finished runs are trained further
            for path in folder.glob("*/result.json"):
                path.unlink(missing_ok=True)
        for run, run_config in run_configs.items():
            checksummed_json.write(run / "config.json", {**run_config, "experiment": dataclasses.asdict(config)})
        if (folder / SETTINGS).exists():
            checksummed_json.write(folder / SETTINGS, {"experiment": dataclasses.asdict(config)})
    print(f"Resuming with changed options: {format_diff(changes)}.")
    return config


def load_config(folder: pathlib.Path, config_class: type) -> Any:
    """Load the config, an instance of `config_class`, from the first run in a folder whose config.json can be read."""
    first_error = None
    for run in [*list_runs(folder), folder]:
        try:
            saved = checksummed_json.read(run / SETTINGS) if run == folder else read_config(run)
            return dataclass_from_dict(config_class, saved["experiment"])
        except (checkpoints.CheckpointError, FileNotFoundError) as error:
            first_error = first_error or error
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"--resume {run / 'config.json'}: it does not hold the config of this experiment."
            ) from error
    raise first_error


def check_same_corpus(folder: pathlib.Path, corpus: Corpus):
    """Check that the runs in a folder, of which there may be none, were trained on this corpus."""
    for run in list_runs(folder):
        try:
            sha256 = read_config(run)["corpus"]["sha256"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{run / 'config.json'} does not name the corpus of its run: start a new run.") from error
        if sha256 != corpus.sha256:
            raise ValueError(
                f"{folder} was trained on a corpus of sha256 {sha256}, but {corpus.name} now has {corpus.sha256}: "
                "resume with the same text, or start a new run."
            )


def dataclass_from_dict(dataclass_type: type, values: dict) -> Any:
    """Build a dataclass from what `dataclasses.asdict` and JSON made of it: dicts of dataclasses, lists of tuples."""
    types = {field.name: field.type for field in dataclasses.fields(dataclass_type)}
    if unknown := sorted(values.keys() - types.keys()):
        raise ValueError(
            f"The config to resume has options that are unknown here, such as {unknown[0]}: it is that of another "
            "experiment or version."
        )
    arguments = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(types[name]):
            value = dataclass_from_dict(types[name], value)
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return dataclass_type(**arguments)

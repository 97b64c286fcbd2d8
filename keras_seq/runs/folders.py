"""The folders of runs: their names, their config, and whose text they were trained on."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from keras_seq import training
from keras_seq.data import Corpus
from keras_seq.training import checkpoints
from keras_seq.training.run_config import read_config
from keras_seq.training.run_folder import lock_run

MAX_LABEL = 24  # characters

run_folders = []  # paths LOG_DIR/EXPERIMENT/UTC-TIME started or resumed by this process, for the command to resume


def run_config(
    settings: Any,
    name: str,
    model_config: Any,
    train: training.TrainConfig,
    model: keras.Model | None = None,
    corpus: Corpus | None = None,
    **extra: Any,
) -> dict:
    """Return the content of a run's config.json; `extra` is what else identifies the run, such as its seed."""
    resolved = {} if model is None else train.resolved(model)
    return {
        "experiment": dataclasses.asdict(settings),
        "model": {"name": name, **({} if model_config is None else dataclasses.asdict(model_config))},
        "train": dataclasses.asdict(train) | resolved,
        **({} if corpus is None else {"corpus": {"name": corpus.name, "sha256": corpus.sha256}}),
        **extra,
    }


@contextlib.contextmanager
def timestamped_folder(parent: str | os.PathLike[str], label: str = "") -> Iterator[pathlib.Path]:
    """Create the folder UTC-TIME-LABEL for the block; at its end, remove it and its new parents if they are empty."""
    parent = pathlib.Path(parent)
    now = "-".join(filter(None, [time.strftime("%Y%m%d-%H%M%S", time.gmtime()), label]))
    created = [path for path in (parent, *parent.parents) if not path.exists()]
    parent.mkdir(parents=True, exist_ok=True)
    for name in itertools.chain([now], (f"{now}-{n}" for n in itertools.count(2))):
        with contextlib.suppress(FileExistsError):  # perhaps created by another process just now
            (folder := parent / name).mkdir()
            break
    try:
        yield folder
    finally:
        for path in (folder, *created):
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()


def corpus_label(names: str | Sequence[str] | None) -> str:
    """Return the names of a corpus as a part of a folder's name; "" without one."""
    names = names or ""
    first, *others = [names] if isinstance(names, str) else names
    name = re.sub(r"[^\w.-]+", "-", pathlib.PurePath(first).stem).strip("-.")[:MAX_LABEL]
    return f"{name}-and-{len(others)}-more" if name and others else name


@contextlib.contextmanager
def own_folder(folder: pathlib.Path, is_shared: bool) -> Iterator[None]:
    """Name the folder in the command to resume, and lock it unless several jobs share it."""
    run_folders.append(folder)
    if is_shared:
        yield
        return
    with lock_run(folder):
        try:
            yield
        finally:
            (folder / ".lock").unlink(missing_ok=True)  # a process that has it open notices that it was removed


def list_runs(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the run folders in `folder` that have a config.json or a checkpoint, sorted by name."""
    return sorted(run for run in folder.glob("*/") if is_run(run))


def is_run(folder: pathlib.Path) -> bool:
    """Return whether a folder is that of a run: it has a config.json or a checkpoint."""
    return (folder / "config.json").exists() or checkpoints.has_checkpoints(folder / "checkpoints")


def dataclass_from_dict(dataclass_type: type, values: dict) -> Any:
    """Build a dataclass from what `dataclasses.asdict` and JSON made of it: dicts of dataclasses, lists of tuples.

    Fields that are newer than the values have `older_defaults`, or else their defaults.
    """
    types = {field.name: field.type for field in dataclasses.fields(dataclass_type)}
    if unknown := sorted(values.keys() - types.keys()):
        other = "it is that of another experiment or version"
        raise ValueError(f"The config to resume has options that are unknown here, such as {unknown[0]}: {other}.")
    arguments = {**getattr(dataclass_type, "older_defaults", {})}
    for name, value in values.items():
        if dataclasses.is_dataclass(types[name]):
            value = dataclass_from_dict(types[name], value)
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return dataclass_type(**arguments)


def check_same_corpus(folder: pathlib.Path, corpus: Corpus):
    """Raise a ValueError unless the runs in a folder, of which there may be none, were trained on this corpus."""
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

"""Folders named by the time: LOG_DIR/EXPERIMENT/UTC-TIME, or UTC-TIME-2 if that name is taken."""

import contextlib
import datetime
import itertools
import os
import pathlib
from collections.abc import Iterator


def utc_time() -> str:
    """Return the time in UTC, to the second, as the name of a folder."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")


def new_folder(parent: str | os.PathLike[str]) -> pathlib.Path:
    """Create a folder in `parent` that did not exist before, also if another process does so at the same time."""
    parent, time = pathlib.Path(parent), utc_time()
    parent.mkdir(parents=True, exist_ok=True)
    for name in itertools.chain([time], (f"{time}-{n}" for n in itertools.count(2))):
        folder = parent / name
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder


@contextlib.contextmanager
def timestamped_folder(parent: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Create a new folder for the block; at its end, remove it and the parents created with it if they are empty."""
    parent = pathlib.Path(parent)
    created = [path for path in (parent, *parent.parents) if not path.exists()]
    folder = new_folder(parent)
    try:
        yield folder
    finally:
        for path in (folder, *created):
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()

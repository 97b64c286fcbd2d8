"""A folder by the time, for what begins now: LOG_DIR/EXPERIMENT/UTC-TIME, or UTC-TIME-2 if another took it first."""

import contextlib
import datetime
import itertools
import pathlib


def now() -> str:
    """The time in UTC, to the second, as the name of a folder."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")


def new_folder(parent) -> pathlib.Path:
    """Makes a folder that is nobody else's."""
    parent, time = pathlib.Path(parent), now()
    parent.mkdir(parents=True, exist_ok=True)
    for name in itertools.chain([time], (f"{time}-{n}" for n in itertools.count(2))):
        folder = parent / name
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder


@contextlib.contextmanager
def begun_folder(parent):
    """The same; where nothing was written in it, it goes at the end, and so do those that were made around it."""
    parent = pathlib.Path(parent)
    made = [place for place in (parent, *parent.parents) if not place.exists()]
    folder = new_folder(parent)
    try:
        yield folder
    finally:
        for place in (folder, *made):
            with contextlib.suppress(OSError):  # not empty
                place.rmdir()

"""Folders named by the time: LOG_DIR/EXPERIMENT/UTC-TIME, or UTC-TIME-2 if that name is taken."""

import contextlib
import itertools
import os
import pathlib
import time
from collections.abc import Iterator


@contextlib.contextmanager
def timestamped_folder(parent: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Create a new folder for the block; at its end, remove it and the parents created with it if they are empty."""
    parent, now = pathlib.Path(parent), time.strftime("%Y%m%d-%H%M%S", time.gmtime())
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

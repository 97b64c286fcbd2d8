"""Folders named by the time and the text: LOG_DIR/EXPERIMENT/UTC-TIME-CORPUS, or with -2 if that name is taken."""

import contextlib
import itertools
import os
import pathlib
import re
import time
from collections.abc import Iterator
from typing import Any

MAX_LABEL = 24  # characters


@contextlib.contextmanager
def timestamped_folder(parent: str | os.PathLike[str], label: str = "") -> Iterator[pathlib.Path]:
    """Create a new folder for the block; at its end, remove it and the parents created with it if they are empty.

    Args:
        parent: Folder around it.
        label: End of its name, such as that of the corpus, by which TensorBoard's list of runs tells what they read.
    """
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


def corpus_label(settings: Any) -> str:
    """Return the name of the corpus of an experiment's settings as a part of a folder's name; "" without one."""
    names = getattr(settings, "corpus", None) or ""
    first, *others = [names] if isinstance(names, str) else names
    name = re.sub(r"[^\w.-]+", "-", pathlib.PurePath(first).stem).strip("-.")[:MAX_LABEL]
    return f"{name}-and-{len(others)}-more" if name and others else name

"""One process at a time trains in a folder.

The lock (`.lock`, by the filelock library) ends with its process, however that ends: a file that a killed run left
locks nothing. `.process` says who holds it.
"""

import contextlib
import errno
import os
import pathlib
import platform

import filelock


@contextlib.contextmanager
def lock_run(folder):
    """Holds the folder of a run.

    Raises:
        BlockingIOError: another process holds it, or this one already does.
        IsADirectoryError: a folder is in the place of one of the two files.
    """
    folder = pathlib.Path(folder)
    who = folder / ".process"
    for path in (who, folder / ".lock"):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "a folder is where this file has to be: remove it", str(path))
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        other = who.read_text(encoding="utf-8", errors="replace").strip() if who.exists() else "unknown"
        told = f"another process trains there (process {other:.100}): wait until it has ended, or end it"
        raise BlockingIOError(errno.EWOULDBLOCK, told, str(folder)) from None
    try:
        who.write_text(f"{os.getpid()} on {platform.node()}\n", encoding="utf-8")
        yield
    finally:
        who.unlink(missing_ok=True)
        lock.release()

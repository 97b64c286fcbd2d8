"""Lock the folder of a run, so that one process at a time trains in it.

The lock (`.lock`, by the filelock library) is released when the process exits, even if it is killed; stale lock files
have no effect. `.pid` names the process that holds it.
"""

import contextlib
import errno
import os
import pathlib
import platform

import filelock


@contextlib.contextmanager
def lock_run(folder: str | pathlib.Path):
    """Hold the lock of a run's folder inside a `with` block.

    Args:
        folder: Existing folder of the run.

    Raises:
        BlockingIOError: If another process holds the lock, or this one already does.
        IsADirectoryError: If `.lock` or `.pid` is a folder.
    """
    folder = pathlib.Path(folder)
    pid_file = folder / ".pid"
    for path in (pid_file, folder / ".lock"):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "this has to be a file, but is a folder: remove it", str(path))
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        holder = pid_file.read_text(encoding="utf-8", errors="replace").strip() if pid_file.exists() else "unknown"
        message = f"another process trains there (process {holder:.100}): wait until it has ended, or end it"
        raise BlockingIOError(errno.EWOULDBLOCK, message, str(folder)) from None
    try:
        pid_file.write_text(f"{os.getpid()} on {platform.node()}\n", encoding="utf-8")
        yield
    finally:
        pid_file.unlink(missing_ok=True)
        lock.release()

"""Claim a run, so that one of several processes trains it, on one machine or on many that share a folder.

    FOLDER/.claims/RUN.lock      held by the process; released when it ends, however it ends
    FOLDER/.claims/RUN           "PID HOST"; touched every 10 seconds, where locks do not reach another machine

A claim of another machine that was not touched for a minute, by the clock of the file server, is taken over.
"""

import contextlib
import os
import pathlib
import platform
import signal
import threading
from collections.abc import Iterator

import filelock

BEAT_SECONDS, STALE_SECONDS = 10.0, 60.0


@contextlib.contextmanager
def claim(run: pathlib.Path) -> Iterator[bool]:
    """Yield whether this process has the run to itself inside the `with` block."""
    path = run.parent / ".claims" / run.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(filelock.FileLock(path.with_name(f"{run.name}.lock"), blocking=False))
        except filelock.Timeout:
            yield False
            return
        except (OSError, NotImplementedError):  # a file system without locks
            pass
        owner = f"{os.getpid()} {platform.node()}"
        if not _take(path, owner):
            yield False
            return
        stopped = threading.Event()
        thread = threading.Thread(target=_beat, args=(path, owner, stopped), daemon=True)
        thread.start()
        try:
            yield True
        finally:
            stopped.set()
            thread.join()
            if _owner(path) == owner:
                path.unlink(missing_ok=True)


def _take(path, owner):
    """Create the file of a claim, in place of a stale one; return whether that succeeded."""
    if _owner(path) is not None:
        if _is_alive(path):
            return False
        stale = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.stale")
        try:
            os.rename(path, stale)  # one of several processes does
        except FileNotFoundError:
            return False
        if _is_alive(stale):  # another took the claim over in between: it is given back
            with contextlib.suppress(FileExistsError):
                os.link(stale, path)
        stale.unlink()
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(owner)
    except FileExistsError:
        return False
    return True


def _owner(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _is_alive(path):
    """Return whether the owner of a claim trains; on this machine it would hold the lock."""
    owner = _owner(path)
    if owner is None or owner.partition(" ")[2] == platform.node():
        return False
    probe = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.now")
    probe.touch()  # the time of the server, which this machine's clock may differ from
    try:
        return probe.stat().st_mtime - path.stat().st_mtime < STALE_SECONDS
    except FileNotFoundError:
        return False
    finally:
        probe.unlink()


def _beat(path, owner, stopped):
    """Touch the claim; stop the training if it was taken over, as after a suspension of minutes."""
    while not stopped.wait(BEAT_SECONDS):
        if _owner(path) != owner:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        os.utime(path)

"""Files that are whole or not there: written under a temporary name, made durable, then renamed.

    write  .NAME.PID.partial    ->    fsync it    ->    rename it to NAME    ->    fsync the folder

A kill at any moment leaves the old file or the new one; a temporary that a kill left is removed by `remove_partials`.
TensorBoard reads every file with "tfevents" in its name, so no temporary has that.
"""

import contextlib
import itertools
import json
import os
import pathlib
import re

PARTIAL = re.compile(r"\..*\.(\d+)\.partial.*|vocabulary\.json\.(\d+)\.part")  # the latter: keras_seq.text


@contextlib.contextmanager
def atomic_write(path):
    """Gives a temporary path beside `path` to write to, and renames it to `path` if nothing went wrong.

    ```python
    with replacing("result.json") as temporary:
        temporary.write_text("{}")
    ```

    Raises:
        OSError: it cannot be written; the error names `path`, and what was there before is as it was.
    """
    path = pathlib.Path(path)
    stem = path.stem.replace("tfevents", "events")
    temporary = path.with_name(f".{stem}.{os.getpid()}.partial{path.suffix}")
    try:
        temporary.unlink(missing_ok=True)  # in a folder of somebody else it might be a link that leads elsewhere
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except IsADirectoryError as error:
        told = "a folder is where this file has to be written: move it away, or remove it"
        raise IsADirectoryError(error.errno, told, str(path)) from error
    except OSError as error:
        if error.filename is None or pathlib.Path(error.filename) == temporary:  # a full disk names no file
            raise type(error)(error.errno, error.strerror or str(error), str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # whoever was told of the first fault need not hear of a second
            temporary.unlink(missing_ok=True)


def sync(path):
    """Makes the bytes of a file durable."""
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def sync_folder(path):
    """Makes the names in a folder durable, where the system can."""
    if os.name != "posix":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def partials(folder) -> list[pathlib.Path]:
    """What a kill left half written in a folder; what another process writes there now is not among it."""
    folder = pathlib.Path(folder)
    found = ((path, PARTIAL.fullmatch(path.name)) for path in (folder.iterdir() if folder.is_dir() else ()))
    return [path for path, match in found if match and not _other_lives(int(match[1] or match[2]))]


def remove_partial_files(folder):
    """Removes the `partials` of a folder."""
    for path in partials(folder):
        path.unlink(missing_ok=True)


def leftovers(run) -> list[pathlib.Path]:
    """The `partials` in all folders of a run that are written to."""
    run = pathlib.Path(run)
    return [path for place in ("", "checkpoints", "train", "validation") for path in partials(run / place)]


def remove_leftovers(run):
    """Removes them."""
    for path in leftovers(run):
        path.unlink(missing_ok=True)


def _other_lives(process):
    """Whether there is a process of that number, other than this one."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except PermissionError:  # somebody else's
        return True
    except (OSError, OverflowError):
        return False
    return True


def set_aside(path) -> str:
    """Keeps a corrupt file under another name, without "tfevents" in it; says so, in words that follow a comma."""
    path = pathlib.Path(path)
    if not path.exists():
        return ""
    first = path.with_name(f"{path.name.replace('tfevents', 'events')}.corrupt")
    names = itertools.chain([first], (first.with_name(f"{first.name}-{n}") for n in itertools.count(2)))
    kept = next(name for name in names if not os.path.lexists(name))
    os.rename(path, kept)
    return f", and what was there is kept as {kept.name}"


def write_json(path, value):
    """Writes `value` as readable JSON; numbers that JSON does not know (NaN) are an error."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path, text):
    """Writes a UTF-8 text."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")

"""Files that are whole or not there: written under a temporary name, made durable, then renamed.

    write  .NAME.PID.partial    ->    fsync it    ->    rename it to NAME    ->    fsync the folder

A kill at any moment leaves the old file or the new one; a temporary that a kill left is removed by `remove_partials`.
"""

import contextlib
import json
import os
import pathlib


@contextlib.contextmanager
def replacing(path):
    """Gives a temporary path beside `path` to write to, and renames it to `path` if nothing went wrong.

    ```python
    with replacing("result.json") as temporary:
        temporary.write_text("{}")
    ```

    Raises:
        OSError: it cannot be written; the error names `path`, and what was there before is as it was.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        temporary.unlink(missing_ok=True)  # in a folder of somebody else it might be a link that leads elsewhere
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
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


def remove_partials(folder):
    """Removes what a kill left half written in a folder, also of a tokenizer (`keras_seq.text`)."""
    for pattern in (".*.partial*", "vocabulary.json.*.part"):
        for path in pathlib.Path(folder).glob(pattern):
            path.unlink(missing_ok=True)


def write_json(path, value):
    """Writes `value` as readable JSON; numbers that JSON does not know (NaN) are an error."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path, text):
    """Writes a UTF-8 text."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")

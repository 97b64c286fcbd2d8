"""Files that are whole or not there: written under a temporary name, made durable, then renamed."""

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
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path, value):
    """Writes `value` as readable JSON; numbers that JSON does not know (NaN) are an error."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_text(path, text):
    """Writes a UTF-8 text."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")

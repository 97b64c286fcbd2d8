"""Files of this package, there as a whole or not at all: a tokenizer as JSON in ASCII, a text that is kept."""

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

from keras_seq.tokenizers.text_errors import TokenizerError

MAX_TOKENIZER_BYTES = 1 << 26  # bytes of a file that is read; a million tokens fit in


def write_json(path: str | os.PathLike[str], config: dict) -> None:
    """Write a config under a temporary name, then rename; an OSError leaves what was there before."""
    write_bytes(path, json.dumps(config).encode("ascii"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write bytes under a temporary name, then rename; an OSError leaves what was there before."""
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)  # in a folder of somebody else it might be a link that leads elsewhere
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except IsADirectoryError as error:
        told = "a folder is where this file has to be written: move it away, or remove it"
        raise IsADirectoryError(error.errno, told, str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def read_json(path: str | os.PathLike[str], make: Callable, what: str) -> object:
    """What `make` makes of the JSON in a file.

    Args:
        path: The file.
        make: From the parsed JSON, whatever that is, to an object; it raises a VocabularyError where it cannot.
        what: What the file should hold, for the messages.

    Raises:
        VocabularyError: The file cannot be read, is not JSON, or `make` refuses what is in it.
    """
    if not isinstance(path, str | os.PathLike):
        raise TokenizerError(f"The {what} is in a file; expected its path, not {path!r}.")
    try:
        return make(json.loads(_read(Path(path))))
    except OSError as error:
        raise TokenizerError(f"The {what} {str(path)!r} cannot be read: {error.strerror}.") from None
    except TokenizerError as error:
        raise TokenizerError(f"The file {str(path)!r} holds no {what}. {error}") from None
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"The file {str(path)!r} holds no {what}, for it is not JSON: {error}.") from None


def _read(path: Path) -> bytes:
    """The bytes of a file, not of a pipe or a device, which may never end, nor of what no tokenizer needs."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "expected a regular file")
    if found.st_size > MAX_TOKENIZER_BYTES:
        raise OSError(errno.EFBIG, f"it has {found.st_size} bytes; expected at most {MAX_TOKENIZER_BYTES}")
    with path.open("rb") as file:
        return file.read(MAX_TOKENIZER_BYTES + 1)

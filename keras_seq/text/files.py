"""A tokenizer's file: JSON in ASCII, there as a whole or not at all."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from keras_seq.text.characters import VocabularyError


def write_json(path: str | os.PathLike[str], config: dict) -> None:
    """Write a config under a temporary name, then rename; an OSError leaves what was there before."""
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="ascii") as file:
            json.dump(config, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
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
    try:
        return make(json.loads(Path(path).read_bytes()))
    except OSError as error:
        raise VocabularyError(f"The {what} {str(path)!r} cannot be read: {error.strerror}.") from None
    except VocabularyError as error:
        raise VocabularyError(f"The file {str(path)!r} holds no {what}. {error}") from None
    except (ValueError, RecursionError) as error:
        raise VocabularyError(f"The file {str(path)!r} holds no {what}, for it is not JSON: {error}.") from None

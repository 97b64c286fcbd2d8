"""Write and read the JSON file of a tokenizer.

{"schema": 2, "registry_name": "words", "vocabulary": ["[UNK]", " ", "the", ...]}              in ASCII
"""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

from keras_seq.atomic_files import check_regular, write_text
from keras_seq.tokenizers.text_errors import TokenizerError

SCHEMA = 2  # version of the file format
MAX_TOKENIZER_BYTES = 1 << 26  # enough for a million tokens


def write_tokenizer(path: str | os.PathLike[str], config: dict) -> None:
    """Write the config of a tokenizer as JSON, atomically.

    Args:
        path: Path of the file.
        config: What `get_config` returns.

    Raises:
        OSError: The file cannot be written; an existing file is unchanged.
    """
    write_text(path, json.dumps({"schema": SCHEMA, **config}))


def read_tokenizer(path: str | os.PathLike[str], from_config: Callable[[dict], object]) -> object:
    """Create a tokenizer from the JSON in a file.

    Args:
        path: Path of the file.
        from_config: Function from the config to the tokenizer; it raises a TokenizerError for an invalid config.

    Returns:
        The result of `from_config`.

    Raises:
        TokenizerError: The file cannot be read, is not JSON, was written by an older version of keras_seq, or its
            config is invalid.
    """
    if not isinstance(path, str | os.PathLike):
        raise TokenizerError(f"path={path!r}; expected the path of a tokenizer file.")
    try:
        config = json.loads(_read(Path(path)))
    except OSError as error:
        raise TokenizerError(f"The tokenizer file {str(path)!r} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"The tokenizer file {str(path)!r} is not JSON: {error}.") from None
    if not isinstance(config, dict):
        raise TokenizerError(f"The tokenizer file {str(path)!r} does not contain a JSON object.")
    schema = config.pop("schema", None)
    if schema != SCHEMA:
        raise TokenizerError(
            f"The tokenizer file {str(path)!r} has schema={str(schema)[:40]}; expected {SCHEMA}: an older version of "
            "keras_seq wrote it, so create the tokenizer again and save it."
        )
    try:
        return from_config(config)
    except ValueError as error:  # a TokenizerError, or of another argument
        raise TokenizerError(f"The tokenizer file {str(path)!r} is invalid: {error}") from None


def _read(path: Path) -> bytes:
    """Read a regular file of limited size; pipes and devices may never end."""
    size = check_regular(path).st_size
    if size > MAX_TOKENIZER_BYTES:
        raise OSError(errno.EFBIG, f"it has {size} bytes; expected at most {MAX_TOKENIZER_BYTES}")
    with path.open("rb") as file:
        return file.read(MAX_TOKENIZER_BYTES + 1)

"""Write and read JSON files with a schema number and a checksum: what is read is what was written, or an error.

    {..., "schema": 2, "checksum": digest}     blake2b of the other keys, as json.dumps(..., sort_keys=True) writes them

Used for config.json and result.json of a run and plan.json of a comparison. A file that is edited by hand is refused.
"""

import hashlib
import json
import pathlib

from keras_seq.files import write_json
from keras_seq.training.checkpoints import CheckpointError, CorruptCheckpointError

SCHEMA = 2  # keras_seq 0.1 wrote no schema number
CHECKSUM = "checksum"


def checksum(value: dict) -> str:
    """Return the digest of a JSON value: 32 hexadecimal digits."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def write(path: str | pathlib.Path, value: dict):
    """Write a dict with schema number and checksum, atomically.

    Args:
        path: Path of the file.
        value: What to write; NaN and infinite numbers are refused.

    Raises:
        ValueError: If a number is not finite.
        OSError: If the file cannot be written.
    """
    value = {**json.loads(json.dumps(value)), "schema": SCHEMA}  # tuples and keys as they will be read
    write_json(path, {**value, CHECKSUM: checksum(value)})


def read(path: str | pathlib.Path) -> dict:
    """Return what `write` wrote, without schema number and checksum.

    Args:
        path: Path of the file.

    Returns:
        The dict.

    Raises:
        CheckpointError: If the file has another schema number, or none, as the files of keras_seq 0.1.
        CorruptCheckpointError: If it is not a regular file, not JSON, or has a wrong checksum. The message names the
            file, has no final period, and leaves the remedy to the caller.
        OSError: If the file is missing or may not be read.
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():
        raise CorruptCheckpointError(f"{path} is corrupt: it is not a regular file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(f"{path} is corrupt: it is not JSON") from error
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"{path} is corrupt: it is not a JSON object")
    stored = value.pop(CHECKSUM, None)
    intact = stored == checksum(value)
    schema = value.pop("schema", None)
    if (stored is None and schema is None) or (intact and schema != SCHEMA):
        version = "keras_seq 0.1" if schema is None else "another version of keras_seq"
        raise CheckpointError(
            f"{path} has schema={schema!r:.20}; expected {SCHEMA}: it was written by {version}; use that version, or "
            "train again in a new folder."
        )
    if not intact:
        raise CorruptCheckpointError(f"{path} was changed after it was written: its checksum does not match")
    return value

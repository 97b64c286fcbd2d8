"""JSON with a seal: what is read is what was written, or an error that names the file.

    {..., "seal": digest}        blake2b of all the rest, as `json.dumps(rest, sort_keys=True)` writes it

So have config.json and result.json of a run, and plan.json of a comparison. To change one by hand is to damage it.
"""

import hashlib
import json
import pathlib

from keras_seq.atomic_files import write_json
from keras_seq.training.checkpoints import CorruptCheckpointError

CHECKSUM = "checksum"


def checksum(value: dict) -> str:
    """The digest of a value as JSON has it: 32 hexadecimal digits."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def write(path, value: dict):
    """Writes a dict with its seal, whole or not at all."""
    value = json.loads(json.dumps(value))  # tuples and keys as they will be read
    write_json(path, {**value, CHECKSUM: checksum(value)})


def read(path) -> dict:
    """What was written, without the seal.

    Raises:
        DamagedError: it is no plain file, no JSON, or has another seal. The error names the file; who calls this knows
            the remedy.
        OSError: it is not there, or may not be read.
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():
        raise CorruptCheckpointError(f"{path} is damaged, it is no plain file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(f"{path} is damaged, it holds no JSON") from error
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"{path} is damaged, it holds no settings and no figures")
    if value.pop(CHECKSUM, None) != checksum(value):
        raise CorruptCheckpointError(
            f"{path} was changed after it was written, or by an older version: its checksum is another"
        )
    return value

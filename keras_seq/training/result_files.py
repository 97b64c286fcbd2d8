"""Write and read result.json, the last file of a run, with the checksums of the files that belong to it.

    {..., "files": {"model.keras": digest, "tokenizer.json": digest, "val_token_losses.npy": digest}}

A model's digest is that of its weights, because the rest of a `.keras` file contains the time. Files that `load_result`
finds corrupt are written again by resuming from the last checkpoint, which has no steps left.
"""

import hashlib
import json
import pathlib
import warnings
import zipfile

from keras_seq.tracking import event_files
from keras_seq.training import checkpoints, checksummed_json
from keras_seq.training.checkpoints import CheckpointError, CorruptCheckpointError
from keras_seq.training.checksummed_json import SCHEMA
from keras_seq.training.metrics_logger import METRICS, read_metrics

__all__ = ["SCHEMA", "check_file", "check_loaded", "describe_tokenizer", "digest", "load_result", "write_result"]

MODEL, WEIGHTS = "model.keras", "model.weights.h5"
TOKENIZER = "tokenizer.json"
FILES = (MODEL, TOKENIZER, "val_token_losses.npy", "adapters.safetensors")


def write_result(run: str | pathlib.Path, result: dict):
    """Write result.json, after all other files of a run.

    Args:
        run: Folder of the run.
        result: Metrics and other JSON values by name.
    """
    run = pathlib.Path(run)
    files = {name: digest(run / name) for name in FILES if (run / name).exists()}
    checksummed_json.write(run / "result.json", {**result, "files": files})


def load_result(run: str | pathlib.Path) -> dict | None:
    """Return the result of a finished run, or None if it has to be trained or resumed.

    Warns if a file of the run is corrupt or missing that resuming writes again.

    Args:
        run: Folder of the run.

    Returns:
        What `write_result` was given, or None.

    Raises:
        CheckpointError: If result.json has another schema number, or metrics.jsonl is corrupt and no checkpoint has a
            copy of it.
    """
    run = pathlib.Path(run)
    if not (run / "result.json").exists():
        return None
    try:
        result = checksummed_json.read(run / "result.json")
        files = result.pop("files")
        for name in files:
            check_file(run / name, files)
        _check_curves(run)
        expected_sizes = checkpoints.latest_event_file_sizes(run / "checkpoints")
        for path in event_files.corrupt_files(run, expected_sizes):
            raise CorruptCheckpointError(f"{path} is {'corrupt' if path.exists() else 'missing'}")
    except CorruptCheckpointError as error:
        warnings.warn(f"{error}; it is written again from the last checkpoint.", stacklevel=3)
        return None
    return result


def check_file(path: str | pathlib.Path, files: dict[str, str]):
    """Check that a file of a run is the one that its result.json was written with.

    Args:
        path: Path of the file.
        files: Digests by file name.

    Raises:
        CorruptCheckpointError: If the file is missing or has another digest.
    """
    path = pathlib.Path(path)
    try:
        same = digest(path) == files.get(path.name)
    except (OSError, zipfile.BadZipFile, KeyError, EOFError):
        same = False
    if not same:
        problem = "corrupt, or was replaced after the run" if path.exists() else "missing"
        raise CorruptCheckpointError(f"{path} is {problem}")


def digest(path: str | pathlib.Path) -> str:
    """Return the SHA-256 of a file; for a `.keras` file that of its weights, after checking the whole archive."""
    path = pathlib.Path(path)
    if path.name != MODEL:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                while file.read(2**20):  # the CRC is checked at the end
                    pass
        return hashlib.sha256(archive.read(WEIGHTS)).hexdigest()


def check_loaded(run: str | pathlib.Path, tokenizer):
    """Check model.keras and tokenizer.json of a run against its config.json and result.json, where these exist.

    Args:
        run: Folder of the run.
        tokenizer: The tokenizer read from tokenizer.json.

    Raises:
        CheckpointError: If config.json or result.json has another schema number.
        CorruptCheckpointError: If a file is not the run's.
    """
    run = pathlib.Path(run)
    if (run / "config.json").exists():
        trained_with = checksummed_json.read(run / "config.json").get("tokenizer")
        if trained_with is not None and trained_with != describe_tokenizer(tokenizer):
            raise CorruptCheckpointError(f"{run / TOKENIZER} is not the tokenizer that the run was trained with")
    if (run / "result.json").exists():
        files = checksummed_json.read(run / "result.json").get("files", {})
        for name in (MODEL, TOKENIZER):
            check_file(run / name, files)


def describe_tokenizer(tokenizer) -> dict:
    """Return the entry of a tokenizer in config.json: vocabulary size and SHA-256 of its config."""
    text = json.dumps(tokenizer.get_config(), sort_keys=True)
    return {"vocabulary_size": tokenizer.vocabulary_size, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _check_curves(run):
    """Check metrics.jsonl against its copy in the last checkpoint, and that every line is valid."""
    path = run / METRICS
    if not path.exists():
        if checkpoints.has_checkpoints(run / "checkpoints"):
            raise CorruptCheckpointError(f"{path} is missing")
        return
    copy = checkpoints.latest_copy(run / "checkpoints", path.name)
    if copy is not None and not (path.is_file() and path.read_bytes().startswith(copy)):
        raise CorruptCheckpointError(f"{path} is corrupt")
    try:
        read_metrics(path)  # a training that diverged has lines after the last checkpoint
    except CheckpointError as error:
        raise error if copy is None else CorruptCheckpointError(f"{path} is corrupt") from error

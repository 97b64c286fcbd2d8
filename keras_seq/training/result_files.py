"""The last file of a run, sealed, with the digests of what belongs to it: result.json.

    {figures, "files": {"model.keras": digest, "vocabulary.json": digest, "losses.npy": digest}, "seal": digest}

A model's digest is that of its weights: the rest of a `.keras` file has the time in it. What `finished` finds damaged
is written again by training on from the last checkpoint, which has no step left to make.
"""

import hashlib
import json
import pathlib
import warnings
import zipfile

from keras_seq.tracking import event_files
from keras_seq.training import checkpoints, checksummed_json
from keras_seq.training.checkpoints import CheckpointError, CorruptCheckpointError
from keras_seq.training.metrics_logger import read_metrics

MODEL, WEIGHTS = "model.keras", "model.weights.h5"
FILES = (MODEL, "tokenizer.json", "val_token_losses.npy")


def write_result(run, figures: dict):
    """Writes result.json, after everything else in the folder of a run."""
    run = pathlib.Path(run)
    files = {name: digest(run / name) for name in FILES if (run / name).exists()}
    checksummed_json.write(run / "result.json", {**figures, "files": files})


def load_result(run) -> dict | None:
    """The figures of a finished run; None where it is still to be trained, or to be gone on with.

    Warns where something in the folder is damaged or gone that going on writes again.
    """
    run = pathlib.Path(run)
    if not (run / "result.json").exists():
        return None
    try:
        figures = checksummed_json.read(run / "result.json")
        files = figures.pop("files")
        for name in files:
            check_file(run / name, files)
        _check_curves(run)
        for path in event_files.damaged(run, checkpoints.newest_events(run / "checkpoints")):
            raise CorruptCheckpointError(f"{path} is {'damaged' if path.exists() else 'gone'}")
    except CorruptCheckpointError as error:
        warnings.warn(f"{error}; it is written again from the last checkpoint.", stacklevel=3)
        return None
    return figures


def check_file(path, files):
    """Raises a DamagedError where a file of a run is not the one that its result.json was written with."""
    path = pathlib.Path(path)
    try:
        same = digest(path) == files.get(path.name)
    except (OSError, zipfile.BadZipFile, KeyError, EOFError):
        same = False
    if not same:
        fault = "damaged, or another than its run wrote" if path.exists() else "gone"
        raise CorruptCheckpointError(f"{path} is {fault}")


def digest(path) -> str:
    """Of the file's bytes; of a model, of its weights, if the whole file can be read."""
    path = pathlib.Path(path)
    if path.name != MODEL:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                while file.read(2**20):  # it compares the checksum at the end
                    pass
        return hashlib.sha256(archive.read(WEIGHTS)).hexdigest()


def check_loaded(run, tokenizer):
    """Raises a DamagedError where model or tokenizer are not those of the run, as far as its other files say."""
    run = pathlib.Path(run)
    if (run / "config.json").exists():
        begun = checksummed_json.read(run / "config.json").get("vocabulary")
        if begun is not None and begun != describe_tokenizer(tokenizer):
            raise CorruptCheckpointError(f"{run / 'tokenizer.json'} is another than the run was trained with")
    if (run / "result.json").exists():
        files = checksummed_json.read(run / "result.json").get("files", {})
        for name in (MODEL, "tokenizer.json"):
            check_file(run / name, files)


def describe_tokenizer(tokenizer) -> dict:
    """What config.json says of a tokenizer."""
    text = json.dumps(tokenizer.get_config(), sort_keys=True)
    return {"size": tokenizer.vocabulary_size, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _check_curves(run):
    """The last checkpoint, if it is still there, vouches for the lines up to it; and each has to be one."""
    path = run / "metrics.jsonl"
    if not path.exists():
        if checkpoints.any_in(run / "checkpoints"):
            raise CorruptCheckpointError(f"{path} is gone")
        return
    copy = checkpoints.newest_copy(run / "checkpoints", path.name)
    if copy is not None and not (path.is_file() and path.read_bytes().startswith(copy)):
        raise CorruptCheckpointError(f"{path} is damaged")
    try:
        read_metrics(path)  # a training that diverged has lines after the last checkpoint
    except CheckpointError as error:
        raise error if copy is None else CorruptCheckpointError(f"{path} is damaged") from error

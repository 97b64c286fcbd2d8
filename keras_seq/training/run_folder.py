"""Lock, write and read the folder of a run, without trusting its files (SECURITY.md).

    config.json      what the run was asked for            {..., "schema": 2, "checksum": digest of the rest}
    result.json      the last file of a finished run       {..., "files": {"model.keras": digest, ...}, ...}

What is read is what was written, or an error that names the file. A model's digest is that of its weights: the rest of
a `.keras` file has the time in it. Resuming writes a file again that `load_result` finds corrupt.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import platform
import warnings
import zipfile

import filelock
import keras

from keras_seq.files import as_json, write_json, write_text
from keras_seq.models import Ensemble, LanguageModel
from keras_seq.saving.keras_file import UntrustedModelError, load_untrusted_model
from keras_seq.tokenizers import TokenizerError, load_tokenizer
from keras_seq.tokenizers.base import Tokenizer
from keras_seq.training import checkpoints
from keras_seq.training.checkpoints import CHECKSUM, CheckpointError, CorruptCheckpointError
from keras_seq.training.log import METRICS, read_metrics

SCHEMA = 2  # keras_seq 0.1 wrote no schema number
MODEL, WEIGHTS = "model.keras", "model.weights.h5"
TOKENIZER = "tokenizer.json"
STARTED_BY = "what started the run, keras-seq train or an experiment"
FILES = (MODEL, TOKENIZER, "val_token_losses.npy", "adapters.safetensors")  # that result.json has the digests of


def write_checksummed(path: str | os.PathLike[str], value: dict) -> None:
    """Write a dict as JSON with schema number and checksum, atomically; numbers have to be finite."""
    value = {**as_json(value), "schema": SCHEMA}  # as it is read
    write_json(path, {**value, CHECKSUM: _json_digest(value)})


def read_checksummed(path: str | os.PathLike[str]) -> dict:
    """Return what `write_checksummed` wrote, without schema number and checksum.

    A file of another version is a `CheckpointError`. One that is not intact is a `CorruptCheckpointError`, whose
    message has no final period, so that the caller can add the remedy.
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
    intact = stored == _json_digest(value)
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


def _json_digest(value):
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


@contextlib.contextmanager
def lock_run(folder: str | os.PathLike[str]):
    """Hold the lock of a run's folder inside a `with` block, so that one process at a time trains in it.

    The system releases the lock of a process that is killed. `.pid` names the process that holds it.
    """
    folder = pathlib.Path(folder)
    pid_file = folder / ".pid"
    for path in (pid_file, folder / ".lock"):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "this has to be a file, but is a folder: remove it", str(path))
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        holder = pid_file.read_text(encoding="utf-8", errors="replace").strip() if pid_file.exists() else "unknown"
        message = f"another process trains there (process {holder:.100}): wait until it has ended, or end it"
        raise BlockingIOError(errno.EWOULDBLOCK, message, str(folder)) from None
    try:
        write_text(pid_file, f"{os.getpid()} on {platform.node()}\n")  # in place of a link, not through it
        yield
    finally:
        pid_file.unlink(missing_ok=True)
        lock.release()


def write_result(run: str | pathlib.Path, result: dict):
    """Write result.json, metrics and other JSON values by name, after all other files in the folder of a run."""
    run = pathlib.Path(run)
    files = {name: digest(run / name) for name in FILES if (run / name).exists()}
    write_checksummed(run / "result.json", {**result, "files": files})


def load_result(run: str | pathlib.Path) -> dict | None:
    """Return what `write_result` wrote to the folder of a run, or None if it has to be trained or resumed.

    Warns if a file of the run is corrupt or missing that resuming writes again.

    Raises:
        CheckpointError: If result.json has another schema number, or metrics.jsonl is corrupt and no checkpoint has a
            copy of it.
    """
    run = pathlib.Path(run)
    if not (run / "result.json").exists():
        return None
    try:
        result = read_checksummed(run / "result.json")
        files = result.pop("files")
        for name in files:
            _check_file(run / name, files)
        _check_metrics(run)
    except CorruptCheckpointError as error:
        warnings.warn(f"{error}; it is written again from the last checkpoint.", stacklevel=3)
        return None
    return result


def digest(path: str | pathlib.Path) -> str:
    """Return the SHA-256 of a file; for a `.keras` file that of its weights, after checking the whole archive."""
    path = pathlib.Path(path)
    if path.name != MODEL:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    with zipfile.ZipFile(path) as archive:
        if (member := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{member} is corrupt")
        return hashlib.sha256(archive.read(WEIGHTS)).hexdigest()


def describe_tokenizer(tokenizer) -> dict:
    """Return the entry of a tokenizer in config.json: vocabulary size and SHA-256 of its config."""
    text = json.dumps(tokenizer.get_config(), sort_keys=True)
    return {"vocabulary_size": tokenizer.vocabulary_size, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _check_file(path, files):
    """Refuse a file of a run that is missing or has another digest than in `files`."""
    try:
        same = digest(path) == files.get(path.name)
    except (OSError, zipfile.BadZipFile, KeyError, EOFError):
        same = False
    if not same:
        problem = "corrupt, or was replaced after the run" if path.exists() else "missing"
        raise CorruptCheckpointError(f"{path} is {problem}")


def _check_metrics(run):
    """Refuse metrics.jsonl if it does not begin with its copy in the last checkpoint, or a line is not valid."""
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


def check_loaded(run: str | pathlib.Path, tokenizer):
    """Check model.keras and the tokenizer of tokenizer.json against config.json and result.json, where these exist."""
    run = pathlib.Path(run)
    if (run / "config.json").exists():
        trained_with = read_checksummed(run / "config.json").get("tokenizer")
        if trained_with is not None and trained_with != describe_tokenizer(tokenizer):
            raise CorruptCheckpointError(f"{run / TOKENIZER} is not the tokenizer that the run was trained with")
    if (run / "result.json").exists():
        files = read_checksummed(run / "result.json").get("files", {})
        for name in (MODEL, TOKENIZER):
            _check_file(run / name, files)


def check_finished(run: str | os.PathLike[str]) -> None:
    """Raise a ValueError, which says what to name instead, unless a folder has the files of a finished run."""
    run = pathlib.Path(run)
    if not run.is_dir():
        expected = f"its folder {run.parent}" if run.name in (MODEL, TOKENIZER) else "the folder of a finished run"
        raise ValueError(f"{run} {'is a file' if run.exists() else 'does not exist'}; expected {expected}.")
    if is_hugging_face(run):
        raise ValueError(f"{run} is a Hugging Face folder: keras_seq.pretrained.load loads it.")
    for name in (MODEL, TOKENIZER, "config.json", "result.json"):
        within(run, run / name)
    with _saying_how_to_repair(run):
        if (run / "config.json").is_file():
            read_checksummed(run / "config.json")  # refuses a run of keras_seq 0.1, whose files have other names
    for name in (MODEL, TOKENIZER):
        if not (run / name).is_file():
            expected = "the folder of a finished run"
            if checkpoints.has_checkpoints(run / "checkpoints"):
                remedy = f"to go on from the latest checkpoint, --resume {run} with {STARTED_BY}"
                raise ValueError(f"{run}: {name} is missing, the run is not finished; expected {expected}: {remedy}.")
            raise ValueError(f"{run}: {name} is missing; expected {expected}{_runs_in(run)}.")


def is_hugging_face(folder: pathlib.Path) -> bool:
    """Return whether a folder is no run and its config.json is one of transformers."""
    if (folder / MODEL).exists():
        return False
    try:
        return "model_type" in json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def load_run(run: str | os.PathLike[str]) -> tuple[keras.Model, Tokenizer]:
    """Load the model and the tokenizer from the folder of a finished run.

    Raises:
        ValueError: If a file is missing, corrupt, of another run, written by an older version, or a link out of `run`.
    """
    run = pathlib.Path(run)
    check_finished(run)
    with _saying_how_to_repair(run):
        model, tokenizer = load_untrusted_model(run / MODEL), load_tokenizer(run / TOKENIZER)
        check_loaded(run, tokenizer)
    return model, tokenizer


@contextlib.contextmanager
def _saying_how_to_repair(run):
    try:
        yield
    except (UntrustedModelError, TokenizerError, CorruptCheckpointError) as error:
        remedy = f"to write it again from the latest checkpoint, --resume {run} with {STARTED_BY}"
        raise ValueError(f"{str(error).rstrip('.')}: {remedy}.") from error


def load_language_model(run: str | os.PathLike[str]) -> tuple[LanguageModel | Ensemble, Tokenizer]:
    """Load the language model and the tokenizer from the folder of a finished run.

    Raises:
        ValueError: As `load_run`; or if the model does not predict the next token.
    """
    model, tokenizer = load_run(run)
    if not isinstance(model, (LanguageModel, Ensemble)):
        raise ValueError(f"{run}: its model is not a language model; expected one that predicts the next token.")
    return model, tokenizer


def within(run: str | os.PathLike[str], path: str | os.PathLike[str]) -> pathlib.Path:
    """Return a path in a run's folder; raise a ValueError if a symbolic link leads it out of there."""
    run, path = pathlib.Path(run), pathlib.Path(path)
    if not path.resolve().is_relative_to(run.resolve()):
        raise ValueError(f"{path} is a link that leads out of {run}: copy the file it refers to, or name another path.")
    return path


def _runs_in(folder):
    """Return, as the end of a sentence, the finished runs in a folder that is not itself one."""
    runs = [str(path.parent) for path in sorted(folder.glob(f"*/{MODEL}"))]
    return f", such as {' or '.join(runs[:4])}" if runs else ""

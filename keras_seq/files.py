"""Write files and folders so that a kill at any moment leaves the old one or the new one; end a training on request.

    write  .NAME.PID.partial    ->    fsync it    ->    rename it to NAME    ->    fsync the parent folder

`remove_partial_files` removes temporary files that a killed process left. TensorBoard reads every file with "tfevents"
in its name, so temporary names do not contain that. `check_regular` is for reading: a pipe or a device, which may never
end, is not opened.
"""

import contextlib
import errno
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

PARTIAL = re.compile(r"\..*\.(\d+)\.partial.*")


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield a temporary path beside `path`, with its suffix, and rename it to `path` unless an exception is raised."""
    path = pathlib.Path(path)
    if path.exists() and not path.is_dir():
        check_regular(path)  # a device or a pipe would be replaced
    stem = path.stem.replace("tfevents", "events")
    temporary = path.with_name(f".{stem}.{os.getpid()}.partial{path.suffix}")
    try:
        _remove(temporary)  # in a shared folder it might be a link that leads elsewhere
        yield temporary
        for part in sorted(temporary.rglob("*")) if temporary.is_dir() else [temporary]:
            if part.is_file():
                sync(part)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except IsADirectoryError as error:
        message = "a folder is where this file has to be written: move it away, or remove it"
        raise IsADirectoryError(error.errno, message, str(path)) from error
    except OSError as error:
        # A full disk names no file.
        if error.filename is None or pathlib.Path(error.filename).is_relative_to(temporary):
            raise type(error)(error.errno, error.strerror or str(error), str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to report
            _remove(temporary)


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Return the status of a regular file, before it is opened to be read."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return status


def is_free(path: str | os.PathLike[str]) -> bool:
    """Return whether `atomic_folder` can write there: nothing is at this path, or an empty folder."""
    return not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path))


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield a new folder, and give it this path when it is whole.

    An empty folder at this path stays, as it may be a mount point or the current folder: its files are written to a
    folder within it, and moved up one by one. They move in the reverse order of their names, so that config.json and
    saved_model.pb, without which nothing is loaded, come late.
    """
    path = pathlib.Path(path)
    is_new = not os.path.lexists(path)
    whole = path if is_new else path / ".whole"
    with atomic_write(whole) as temporary:
        temporary.mkdir(parents=True)
        yield temporary
    if not is_new:
        for part in sorted(whole.iterdir(), reverse=True):
            os.replace(part, path / part.name)
        whole.rmdir()
        sync_folder(path)


def sync(path: str | os.PathLike[str]) -> None:
    """Flush the contents of a file to disk with `fsync`."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Flush the names in a folder to disk with `fsync`, on POSIX systems."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def partial_files(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
    """List the temporary files that killed processes left in a folder, without those of running processes."""
    folder = pathlib.Path(folder)
    matches = ((path, PARTIAL.fullmatch(path.name)) for path in (folder.iterdir() if folder.is_dir() else ()))
    return [path for path, match in matches if match and not _is_running_elsewhere(int(match[1]))]


def remove_partial_files(folder: str | os.PathLike[str]) -> None:
    """Remove the temporary files that killed processes left in a folder."""
    for path in partial_files(folder):
        _remove(path)


def leftovers(run: str | os.PathLike[str]) -> list[pathlib.Path]:
    """List the `partial_files` of a run folder and of its subfolder `checkpoints`."""
    run = pathlib.Path(run)
    return [path for name in ("", "checkpoints") for path in partial_files(run / name)]


def remove_leftovers(run: str | os.PathLike[str]) -> None:
    """Remove the `leftovers` of a run folder."""
    for path in leftovers(run):
        _remove(path)


def _remove(path):
    """Remove a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_running_elsewhere(process_id):
    """Return whether a process with this id, other than the current one, is running."""
    if process_id == os.getpid():
        return False
    try:
        os.kill(process_id, 0)
    except PermissionError:  # a process of another user
        return True
    except (OSError, OverflowError):
        return False
    return True


def set_aside(path: str | os.PathLike[str]) -> str:
    """Rename a corrupt file to `NAME.corrupt`, and describe that for an error message."""
    path = pathlib.Path(path)
    if not path.exists():
        return ""
    first = path.with_name(f"{path.name.replace('tfevents', 'events')}.corrupt")
    names = itertools.chain([first], (first.with_name(f"{first.name}-{n}") for n in itertools.count(2)))
    renamed = next(name for name in names if not os.path.lexists(name))
    os.rename(path, renamed)
    return f", and the old file is kept as {renamed.name}"


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Write a value as indented UTF-8 JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def as_json(value: object) -> object:
    """Return what reading the JSON of a value gives; numbers of NumPy, JAX and torch are numbers in it."""

    def number(value):
        if not hasattr(value, "item") or getattr(value, "ndim", 1):
            raise TypeError(f"{value!r:.80} of type {type(value).__name__} cannot be written as JSON.")
        return value.item()

    return json.loads(json.dumps(value, default=number))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_tensors(path: str | os.PathLike[str], arrays: dict, metadata: dict[str, str]) -> None:
    """Write arrays by name to a safetensors file; what the library cannot write is an OSError, as elsewhere."""
    from safetensors import SafetensorError  # imported late: only such files need it
    from safetensors.numpy import save_file

    try:
        save_file(arrays, path, metadata)
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write bytes, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


# A stop on request: Ctrl-C, SIGTERM, a closing terminal (SIGHUP), or a standard output that is closed.
#
#     first request while steps run     they finish; a checkpoint; `TrainingInterrupted`
#     first request while it validates  the validation ends at once, unfinished; a checkpoint; `TrainingInterrupted`
#     second request                    KeyboardInterrupt at once, without a checkpoint
#
# Under nohup, which ignores SIGHUP, a closed terminal is not a request.

SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
TERMINAL_CLOSED = getattr(signal, "SIGHUP", None)
OUTPUT_CLOSED = getattr(signal, "SIGPIPE", signal.SIGTERM)  # stands for an output that cannot be written
SAME_REQUEST_SECONDS = 1.0  # the same signal within it counts once: `timeout` signals the process and its group


class StopRequested(KeyboardInterrupt):
    """Signal a stop request inside a `StopRequest.interruptible` block."""


@contextlib.contextmanager
def signal_handler(handler: Callable):
    """Install a handler for the stop signals inside a `with` block; has no effect outside of the main thread."""
    previous = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in SIGNAL_NAMES if hasattr(signal, name)):
                if number != TERMINAL_CLOSED or signal.getsignal(number) is not signal.SIG_IGN:
                    previous[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


class GuardedOutput:
    """Wrap a text stream whose reader may close: failed writes are dropped and the first one is reported."""

    def __init__(self, stream: TextIO, on_error: Callable):
        self.stream, self.on_error, self.error = stream, on_error, None

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        with self._guarded():
            self.stream.write(text)
            if text.endswith("\n"):
                self.stream.flush()
        return len(text)

    def flush(self):
        """Flush the stream."""
        with self._guarded():
            self.stream.flush()

    @contextlib.contextmanager
    def _guarded(self):
        try:
            yield
        except OSError as error:
            if self.error is None:
                self.error = error
                self.on_error(error)

    def __getattr__(self, name):
        """Return an attribute of the guarded stream."""
        return getattr(self.stream, name)


@contextlib.contextmanager
def guard_output(on_error: Callable):
    """Guard standard output inside a `with` block."""
    stdout = sys.stdout
    if stdout is None:  # closed before Python started: print writes nothing
        yield
        return
    nested = isinstance(stdout, GuardedOutput)  # the inner guard replaces the outer one
    with contextlib.redirect_stdout(GuardedOutput(stdout.stream if nested else stdout, on_error)):
        if nested and stdout.error is not None:
            on_error(stdout.error)
        yield


class StopRequest:
    """Record whether a stop was requested: `signal_number` is that of the signal, None without a request."""

    def __init__(self):
        self.signal_number = None
        self._request_time, self._interruptible = 0.0, False

    @contextlib.contextmanager
    def listening(self):
        """Handle stop signals and errors of standard output inside a `with` block."""
        with signal_handler(self.on_signal), guard_output(self._on_output_error):
            yield

    @contextlib.contextmanager
    def interruptible(self):
        """Mark a block without lasting effects: a request, an earlier one included, ends it with `StopRequested`."""
        try:
            self._interruptible = True
            if self.signal_number is not None:
                raise StopRequested(self.signal_number)
            yield
        finally:
            self._interruptible = False

    def on_signal(self, signal_number: int, frame=None):
        """Handle a stop signal."""
        now = time.monotonic()
        if self.signal_number is None:
            self.signal_number, self._request_time = signal_number, now
            what = "the validation; it is repeated at the start of --resume" if self._interruptible else None
            _write_stderr(f"\nStopping {what or 'after the running steps'} ...\n")
            if self._interruptible:
                raise StopRequested(signal_number)
        elif signal_number != TERMINAL_CLOSED and (
            signal_number != self.signal_number or now - self._request_time >= SAME_REQUEST_SECONDS
        ):
            raise KeyboardInterrupt(signal_number)

    def _on_output_error(self, error):
        if self.signal_number is None:
            _write_stderr(f"\nStandard output cannot be written ({error.strerror}).\n")
            self.on_signal(OUTPUT_CLOSED)


def _write_stderr(text):
    with contextlib.suppress(OSError):  # the terminal, or the reader of `2>&1 | tee log`, may be gone by now
        os.write(2, text.encode())  # not print: the signal may have interrupted one

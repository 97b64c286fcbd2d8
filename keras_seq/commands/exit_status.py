"""How a command ends: with a sentence for a mistake, and after a requested stop with the way to resume.

exit status   0 done    1 failures, or diverged training    2 a mistake of the user, named in one sentence
130 Ctrl-C    143 SIGTERM    129 SIGHUP: the terminal was closed    141 SIGPIPE: nobody reads the output
"""

import contextlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import NoReturn

from keras_seq import training
from keras_seq.commands.start import filtered_stderr
from keras_seq.files import OUTPUT_CLOSED, guard_output, signal_handler
from keras_seq.reports.tables import command
from keras_seq.runs import folders
from keras_seq.training import distributed

# of TensorFlow, JAX and torch
OUT_OF_MEMORY = re.compile(
    r"^(ResourceExhausted|\w*RuntimeError: RESOURCE_EXHAUSTED|OutOfMemory)|can't allocate memory"
)
# a ValueError of theirs is a bug: our checks find mistakes
LIBRARIES = {"jax", "keras", "numpy", "tensorflow", "torch"}


@contextlib.contextmanager
def exit_with_message(script: str, use_devices: bool = True) -> Iterator[None]:
    """Turn exceptions caused by the user into one line on stderr and an exit status.

    ValueError, OSError and memory errors exit with status 2, diverged training with 1, and a requested stop with
    128 + the signal's number. Other exceptions keep their traceback, and so does a ValueError raised by one of
    `LIBRARIES`. The parent of worker processes leaves the devices to them (`use_devices`).
    """
    try:
        if use_devices and (tf := sys.modules.get("tensorflow")) is not None:
            with filtered_stderr():
                tf.config.list_logical_devices()  # now, since finding them prints start-up messages
        with raise_on_stop_request():
            yield
    except KeyboardInterrupt as stop:
        exit_interrupted(script, stop)
    except Exception as error:
        message, status = _describe(error)
        if message is None:
            raise
        print(f"{script}: {message}", file=sys.stderr, flush=True)
        if distributed.count() > 1:
            distributed.exit_soon(status, 0 if isinstance(error, distributed.LostProcess) else 5)
        sys.exit(status)


def _describe(error):
    """Return the sentence that tells the user of an error, and the exit status; None for the sentence of a bug."""
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(f"{type(error).__name__}: {error}"):
        reason = str(error).splitlines()[0] if str(error) else "allocation failed"
        return f"out of memory ({reason:.200}): choose smaller sizes.", 2
    if isinstance(error, training.TrainingDiverged | training.LostProcess):
        return str(error), 1
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}.", 2
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    in_library = frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES
    if isinstance(error, OSError) or (isinstance(error, ValueError) and not in_library):
        return f"{' '.join(str(error).split()).rstrip('.')}.", 2
    return None, None


@contextlib.contextmanager
def raise_on_stop_request() -> Iterator[None]:
    """Raise `KeyboardInterrupt(signal number)` in the block when a signal asks for a stop, or output cannot be written.

    If there are run folders, the latter waits until the next training has stopped with a checkpoint, or until the end
    of the block.
    """

    def stop(number, frame=None):
        raise KeyboardInterrupt(number)

    def output_error(error):
        if not folders.run_folders:
            stop(OUTPUT_CLOSED)

    del folders.run_folders[:]
    with signal_handler(stop), guard_output(output_error):
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
            if sys.stdout.error is not None:
                stop(OUTPUT_CLOSED)


def exit_interrupted(script: str, stop: KeyboardInterrupt) -> NoReturn:
    """Print where the checkpoint is and how to resume, as far as the streams can be written, and exit."""
    if not distributed.is_first():  # the first process of the training says it
        sys.exit(128 + getattr(stop, "signal_number", next(iter(stop.args), signal.SIGINT)))
    if isinstance(stop, training.TrainingInterrupted):
        message, number = f"\nStopped. A checkpoint is in {stop.path}", stop.signal_number
        own = (folder for folder in folders.run_folders if stop.path.is_relative_to(folder))  # at any depth
        folder = next(own, stop.path.parents[1 if script.startswith("keras-seq") else 2])
    else:
        message, number = "\nStopped.", next(iter(stop.args), signal.SIGINT)
        folder = next((folder for folder in folders.run_folders if any(folder.glob("*/config.json"))), None)
    with contextlib.suppress(OSError):  # the terminal, or the reader of `2>&1 | tee log`, may be gone
        if folder is not None or number != OUTPUT_CLOSED:  # `keras-seq generate RUN | head` ends silently
            print(message, file=sys.stderr)
        if folder is not None:
            print(f"To resume: {command(script, '--resume', folder)}", file=sys.stderr)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:  # discard what cannot be written, since flushing it at exit would be an error
            with open(os.devnull, "wb") as null_device:
                os.dup2(null_device.fileno(), stream.fileno())
    sys.exit(128 + number)

"""Exit of a script that was asked to stop: a message with the command to resume, and status 128 + signal number.

130 Ctrl-C    143 SIGTERM    129 SIGHUP: the terminal was closed    141 SIGPIPE: standard output has no reader
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

from experiments.frame.shell import python

run_folders = []  # paths LOG_DIR/EXPERIMENT/UTC-TIME started or resumed by this process, for the command to resume


@contextlib.contextmanager
def raise_on_stop_request() -> Iterator[None]:
    """Raise `KeyboardInterrupt(signal number)` in the block when a signal asks for a stop, or output cannot be written.

    If run folders are registered, the latter waits until the next training has stopped with a checkpoint, or until the
    end of the block.
    """
    from keras_seq.stop_signals import OUTPUT_CLOSED, guard_output, signal_handler

    def stop(number, frame=None):
        raise KeyboardInterrupt(number)

    def output_error(error):
        if not run_folders:
            stop(OUTPUT_CLOSED)

    del run_folders[:]
    with signal_handler(stop), guard_output(output_error):
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
            if sys.stdout.error is not None:
                stop(OUTPUT_CLOSED)


def exit_interrupted(script: str, stop: KeyboardInterrupt) -> NoReturn:
    """Print where the checkpoint is and how to resume, as far as the streams can be written, and exit."""
    from keras_seq.stop_signals import OUTPUT_CLOSED

    training = sys.modules.get("keras_seq.training")  # without it, nothing was trained
    processes = sys.modules.get("keras_seq.training.processes")
    if processes is not None and not processes.is_first():  # the first process of the training says it
        sys.exit(128 + getattr(stop, "signal_number", next(iter(stop.args), signal.SIGINT)))
    if training is not None and isinstance(stop, training.TrainingInterrupted):
        message, number, folder = f"\nStopped. A checkpoint is in {stop.path}", stop.signal_number, stop.path.parents[2]
    else:
        message, number = "\nStopped.", next(iter(stop.args), signal.SIGINT)
        folder = next((folder for folder in run_folders if any(folder.glob("*/config.json"))), None)
    with contextlib.suppress(OSError):  # the terminal, or the reader of `2>&1 | tee log`, may be gone
        if folder is not None or number != OUTPUT_CLOSED:  # `experiments.generate RUN | head` ends silently
            print(message, file=sys.stderr)
        if folder is not None:
            print(f"To resume: {python('-m', script, '--resume', folder)}", file=sys.stderr)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:  # discard what cannot be written, since flushing it at exit would be an error
            with open(os.devnull, "wb") as null_device:
                os.dup2(null_device.fileno(), stream.fileno())
    sys.exit(128 + number)

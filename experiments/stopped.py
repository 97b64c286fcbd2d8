"""How a script ends that was asked to stop: what it says, and a status of 128 + the number of the signal.

130 Ctrl-C    143 SIGTERM    129 SIGHUP: the terminal was closed    141 SIGPIPE: nobody reads standard output
"""

import contextlib
import os
import pathlib
import signal
import sys

from experiments.shell import python

_folders = []  # of the runs that this process has begun or gone on with


def goes_to(folder):
    """Notes where the runs of this process are, for the line that says how to go on."""
    _folders.append(pathlib.Path(folder))


@contextlib.contextmanager
def stops_raise():
    """Where a stop is asked for, `KeyboardInterrupt(number)` ends the block.

    So it does where standard output cannot be written; but where there are runs, only after the next training has
    stopped with a checkpoint, or at the end.
    """
    from keras_seq.training.stop_signals import OUTPUT_CLOSED, guard_output, signal_handler

    def stop(number, frame=None):
        raise KeyboardInterrupt(number)

    def unread(error):
        if not _folders:
            stop(OUTPUT_CLOSED)

    del _folders[:]
    with signal_handler(stop), guard_output(unread):
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
            if sys.stdout.error is not None:
                stop(OUTPUT_CLOSED)


def end(script, stop: KeyboardInterrupt):
    """Says what is there and how to go on, as far as anybody can read it, and ends the process."""
    from keras_seq.training import TrainingInterrupted
    from keras_seq.training.stop_signals import OUTPUT_CLOSED

    if isinstance(stop, TrainingInterrupted):
        told, number, folder = f"\nStopped. A checkpoint is in {stop.path}", stop.signal_number, stop.path.parents[2]
    else:
        told, number = "\nStopped.", next(iter(stop.args), signal.SIGINT)
        folder = next((folder for folder in _folders if any(folder.glob("*/config.json"))), None)
    with contextlib.suppress(OSError):  # the terminal, or the reader of `2>&1 | tee log`, may be gone
        if folder is not None or number != OUTPUT_CLOSED:  # `experiments.generate RUN | head` is no fault
            print(told, file=sys.stderr)
        if folder is not None:
            print(f"To go on: {python('-m', script, '--resume', folder)}", file=sys.stderr)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        _let_go(stream)
    sys.exit(128 + number)


def _let_go(stream):
    """What a stream still holds and cannot hand over is dropped, or Python would fail over it at its end."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)

"""The start of every script: TensorFlow without its start-up notes, and a user's mistake as one sentence.

TensorFlow's C++ part writes its notes straight to file descriptor 2, some of them before any log level is read.
So the descriptor is held while TensorFlow starts, and what is no known note is written out afterwards.
"""

import contextlib
import io
import itertools
import os
import re
import sys
import tempfile

NOTES = re.compile(
    rb"^I\d{4} |^WARNING: All log messages before absl|oneDNN custom operations|cpu_feature_guard"
    rb"|To enable the following"
    rb"|Could not find cuda drivers|cuInit|Unable to register cu|TF-TRT Warning|computation_placer|^\s*$"
)


@contextlib.contextmanager
def _held_stderr():
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            for line in held:
                if not NOTES.search(line):
                    os.write(2, line)


def start_tensorflow():
    """Imports TensorFlow and makes it find its devices, without the notes it prints then.

    Where no folder for temporary files can be written, which TensorFlow and Keras need, the process ends with status 2.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        print(f"experiments: {error.strerror}: set TMPDIR to a folder that can be written.", file=sys.stderr)
        sys.exit(2)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # 1: no notes, all warnings
    with _held_stderr():
        import tensorflow as tf

        tf.config.list_logical_devices()


def _is_rule(line):
    return line.startswith(("─", "╰", "---"))


def command_line(settings, script, description, arguments=None, begun=None):
    """The dataclass `settings` from the command line; what it does not say is as in `begun`, or by default.

    Raises:
        ValueError: an option that is unknown or has no such value: what tyro says of it, without the frame.
    """
    import tyro

    framed = io.StringIO()
    try:
        with contextlib.redirect_stderr(framed):
            options = {} if begun is None else {"default": begun}
            return tyro.cli(settings, args=arguments, prog=f"python -m {script}", description=description, **options)
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
        lines = [line.strip("│ ") for line in framed.getvalue().splitlines()[1:]]
        # Where the terminal has no such lines, there is one of - behind the title, too.
        lines = itertools.dropwhile(_is_rule, lines)
        sentence = " ".join(itertools.takewhile(lambda line: not _is_rule(line), lines))
        raise ValueError(f"{sentence.rstrip('.')} (--help lists the options).") from None


@contextlib.contextmanager
def one_sentence(script):
    """Inside it, a mistake of the user ends the script with one sentence and status 2, a stop on request as
    `experiments.stopped` has it.
    """
    import tensorflow as tf

    from experiments import stopped
    from keras_seq.training import TrainingDiverged

    try:
        with stopped.stops_raise():
            yield
    except (ValueError, OSError) as error:
        told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"{script}: {' '.join(told.split()).rstrip('.')}.", file=sys.stderr)
        sys.exit(2)
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        told = str(error).splitlines()[0] if str(error) else "no more of it"
        print(f"{script}: the memory does not suffice ({told:.200}): choose smaller sizes.", file=sys.stderr)
        sys.exit(2)
    except TrainingDiverged as error:
        print(f"{script}: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as stop:
        stopped.end(script, stop)

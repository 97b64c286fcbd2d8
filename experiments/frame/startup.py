"""Script start-up: silence TensorFlow's log messages, parse the command line, turn user errors into one line.

TensorFlow's C++ code writes its messages directly to file descriptor 2, some of them before any log level is read.
While TensorFlow starts, the descriptor is therefore redirected, and all lines but the known messages are printed later.
"""

import contextlib
import io
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

KNOWN_MESSAGES = re.compile(
    rb"^I\d{4} |^WARNING: All log messages before absl|oneDNN custom operations|cpu_feature_guard"
    rb"|To enable the following"
    rb"|Could not find cuda drivers|cuInit|Unable to register cu|TF-TRT Warning|computation_placer|^\s*$"
)


@contextlib.contextmanager
def _filtered_stderr():
    sys.stderr.flush()
    original = os.dup(2)
    with tempfile.TemporaryFile() as buffer:
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            buffer.seek(0)
            for line in buffer:
                if not KNOWN_MESSAGES.search(line):
                    os.write(2, line)


def import_tensorflow():
    """Import TensorFlow without printing its start-up messages, and without touching a device.

    The process exits with status 2 where no folder for temporary files can be written; TensorFlow and Keras need one.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        print(f"experiments: {error.strerror}: set TMPDIR to a folder that can be written.", file=sys.stderr)
        sys.exit(2)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # 1: warnings and errors only
    with _filtered_stderr():
        import tensorflow  # noqa: F401


def list_devices():
    """Have TensorFlow, if it is loaded, find its devices without printing its start-up messages."""
    if (tf := sys.modules.get("tensorflow")) is not None:
        with _filtered_stderr():
            tf.config.list_logical_devices()


def require_tensorflow():
    """Check that Keras's backend is TensorFlow.

    Raises:
        ValueError: The backend is another one.
    """
    if (backend := os.environ["KERAS_BACKEND"]) != "tensorflow":
        raise ValueError(f"KERAS_BACKEND={backend}: expected tensorflow, on which the experiments train.")


def _is_rule(line):
    return line.startswith(("─", "╰", "---"))


def command_line(
    config_class: type, script: str, description: str, arguments: Sequence[str] | None = None, defaults: Any = None
) -> Any:
    """Parse a command line into a dataclass whose fields are the options.

    Args:
        config_class: The dataclass.
        script: Name of the module, for the usage line.
        description: First paragraphs of --help.
        arguments: Command-line arguments; None for those of the process.
        defaults: Instance of `config_class` with the values of the options that are not given; None for the defaults
            of the class.

    Returns:
        An instance of `config_class`.

    Raises:
        ValueError: An option is unknown or has an invalid value; the message is tyro's, without its frame.
    """
    import tyro

    framed = io.StringIO()
    try:
        with contextlib.redirect_stderr(framed):
            options = {} if defaults is None else {"default": defaults}
            return tyro.cli(
                config_class, args=arguments, prog=f"python -m {script}", description=description, **options
            )
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
        lines = [line.strip("│ ") for line in framed.getvalue().splitlines()[1:]]
        # A terminal without box-drawing characters has a rule of hyphens after the title, too.
        lines = itertools.dropwhile(_is_rule, lines)
        message = " ".join(itertools.takewhile(lambda line: not _is_rule(line), lines))
        raise ValueError(f"{message.rstrip('.')} (--help lists the options).") from None


@contextlib.contextmanager
def exit_with_message(script: str, use_devices: bool = True) -> Iterator[None]:
    """Turn exceptions caused by the user into one line on stderr and an exit status.

    ValueError, OSError and memory errors exit with status 2, diverged training with 1, and a requested stop with
    128 + the signal's number (`experiments.frame.interruption`). Other exceptions keep their traceback.

    Args:
        script: Name of the module, printed before the message.
        use_devices: Whether this process computes; the parent of worker processes leaves the devices to them.

    Yields:
        Nothing.

    Raises:
        SystemExit: After one of the exceptions above.
    """
    from experiments.frame import interruption

    try:
        if use_devices:
            list_devices()
        with interruption.raise_on_stop_request():
            yield
    except (ValueError, OSError) as error:
        has_path = isinstance(error, OSError) and error.filename
        message = f"{error.filename}: {error.strerror}" if has_path else str(error)
        print(f"{script}: {' '.join(message.split()).rstrip('.')}.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        interruption.exit_interrupted(script, stop)
    except Exception as error:
        tensorflow, training = (sys.modules.get(name) for name in ("tensorflow", "keras_seq.training"))
        if isinstance(error, MemoryError) or (
            tensorflow and isinstance(error, tensorflow.errors.ResourceExhaustedError)
        ):
            reason = str(error).splitlines()[0] if str(error) else "allocation failed"
            print(f"{script}: out of memory ({reason:.200}): choose smaller sizes.", file=sys.stderr)
            sys.exit(2)
        if training and isinstance(error, training.TrainingDiverged):
            print(f"{script}: {error}", file=sys.stderr)
            sys.exit(1)
        raise

"""Start and end a script: parse the command line, turn user errors into one line and an exit status."""

import contextlib
import dataclasses
import io
import itertools
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import tyro

from experiments.frame import interruption
from experiments.frame.imports import filtered_stderr
from experiments.frame.option_help import print_help
from experiments.frame.option_names import names, suggested, unrecognized
from experiments.frame.option_types import RULES

RULE = ("─", "╰", "---")  # what a horizontal line of a frame begins with; hyphens where there are no box characters
LIBRARIES = {"jax", "keras", "numpy", "tensorflow"}  # a ValueError of theirs is a bug: our checks find mistakes


def command_line(
    config_class: type,
    script: str,
    description: str,
    arguments: Sequence[str] | None = None,
    defaults: Any = None,
    further: type | None = None,
) -> Any:
    """Parse a command line into a dataclass whose fields are the options, or raise a ValueError of one sentence.

    `description` is what --help begins with, `defaults` an instance for the options that are not given,
    `further` a dataclass whose options --help lists too.
    """
    arguments = sys.argv[1:] if arguments is None else [*arguments]
    options = {"prog": f"python -m {script}", "registry": RULES}
    if {"-h", "--help", "--help-all"} & {*arguments}:
        print_help(config_class if defaults is None else defaults, description, arguments, further, **options)
    options |= {} if defaults is None else {"default": defaults}
    framed = io.StringIO()
    try:
        with contextlib.redirect_stderr(framed):
            return tyro.cli(config_class, args=arguments, **options)
    except SystemExit as stop:
        if not stop.code:  # a script for the completion of a shell
            raise
        fields = {field.name for field in dataclasses.fields(config_class)}
        for option in names(arguments) if "Unrecognized" in framed.getvalue() else ():
            if option not in fields and (suggestion := suggested(option, fields)):
                raise ValueError(f"{unrecognized(option, suggestion)}.") from None
        raise ValueError(f"{_first_sentence(framed.getvalue())} (--help lists the options).") from None


def _first_sentence(framed):
    """Return what tyro says of a mistake and what it suggests, without its frame, help and title."""
    lines = [line.strip("│ ") for line in framed.splitlines()[1:]]
    lines = itertools.dropwhile(lambda line: line.startswith(RULE), lines)
    message = " ".join(itertools.takewhile(lambda line: not line.startswith(RULE), lines)).rstrip(".")
    message = re.sub(r"^Error parsing (--\S+|[A-Z]+): ", r"\1 ", message)
    message = re.sub(r"^Error parsing \S+: ", "", message)
    message = re.sub(r"^Missing from [^:]+: (\S+) .*", r"\1 is missing", message)
    if not message.startswith("Unrecognized"):
        return message
    similar = sorted((line.split()[0] for line in lines if re.match(r"--\w", line)), key=len)
    return f"{message}; perhaps you meant {' or '.join(similar[:3])}" if similar else message


@contextlib.contextmanager
def exit_with_message(script: str, use_devices: bool = True) -> Iterator[None]:
    """Turn exceptions caused by the user into one line on stderr and an exit status.

    ValueError, OSError and memory errors exit with status 2, diverged training with 1, and a requested stop with
    128 + the signal's number (`experiments.frame.interruption`). Other exceptions keep their traceback, and so does a
    ValueError raised by one of `LIBRARIES`. The parent of worker processes leaves the devices to them (`use_devices`).
    """
    try:
        if use_devices and (tf := sys.modules.get("tensorflow")) is not None:
            with filtered_stderr():
                tf.config.list_logical_devices()  # now, since finding them prints start-up messages
        with interruption.raise_on_stop_request():
            yield
    except KeyboardInterrupt as stop:
        interruption.exit_interrupted(script, stop)
    except Exception as error:
        message, status = _describe(error)
        if message is None:
            raise
        print(f"{script}: {message}", file=sys.stderr, flush=True)
        processes = sys.modules.get("keras_seq.training.processes")
        if processes is not None and processes.count() > 1:
            processes.exit_soon(status, 0 if isinstance(error, processes.LostProcess) else 5)
        sys.exit(status)


def _describe(error):
    """Return the sentence that tells the user of an error, and the exit status; None for the sentence of a bug."""
    tensorflow, training = (sys.modules.get(name) for name in ("tensorflow", "keras_seq.training"))
    if isinstance(error, MemoryError) or (tensorflow and isinstance(error, tensorflow.errors.ResourceExhaustedError)):
        reason = str(error).splitlines()[0] if str(error) else "allocation failed"
        return f"out of memory ({reason:.200}): choose smaller sizes.", 2
    if training and isinstance(error, training.TrainingDiverged | training.LostProcess):
        return str(error), 1
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}.", 2
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    in_library = frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES
    if isinstance(error, OSError) or (isinstance(error, ValueError) and not in_library):
        return f"{' '.join(str(error).split()).rstrip('.')}.", 2
    return None, None

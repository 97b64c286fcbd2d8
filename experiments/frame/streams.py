"""Make standard input, output and error usable, also if the process was started with closed streams.

A closed stream (`2>&-`, some daemons) is opened at the null device: otherwise the next file opened would get its
number, and with it what libraries write to file descriptor 2. Characters that the encoding of a stream (ASCII,
Latin-1) lacks are written as Unicode escapes, so that they do not raise.
"""

import io
import os
import sys


def prepare_streams():
    """Open closed standard streams at the null device, and escape characters that their encodings lack."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # `number` is the lowest free descriptor
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # notebooks have streams of another type
            stream.reconfigure(errors="backslashreplace")


def read_standard_input() -> str:
    r"""Return all of standard input, with `\r\n` as `\n`, as in a corpus.

    Raises:
        ValueError: It is not UTF-8.
    """
    try:
        text = sys.stdin.read()
        text.encode()  # where the locale is C, bytes that are not UTF-8 have become surrogates
    except UnicodeError as error:
        raise ValueError(f"Standard input is not UTF-8 from offset {error.start} on: convert it to UTF-8.") from None
    return text.replace("\r\n", "\n")

"""Standard input, output and error as scripts need them, whatever they were started with.

A stream may be closed (`2>&-`, some daemons): it is opened at nothing, or else the next file that is opened gets its
number, and with it what libraries write to number 2. It may be of ASCII or Latin-1: what they cannot hold is written
as \\u2013, so that no script ends for a dash in a sentence.
"""

import io
import os
import sys


def ready_streams():
    """Opens what is closed, and lets nothing fail for a character."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free is this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in a notebook it is none
            stream.reconfigure(errors="backslashreplace")

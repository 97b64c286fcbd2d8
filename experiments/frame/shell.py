"""Format command lines that can be pasted into a POSIX shell."""

import os
import pathlib
import shlex
import sys


def command(program: str, *words: str | pathlib.PurePath) -> str:
    """Return a command line quoted for the shell; the program's path is relative, and a path is never an option."""
    program = os.path.relpath(program) if os.path.isabs(program) else program
    words = [f"./{word}" if isinstance(word, pathlib.PurePath) and str(word)[0] == "-" else str(word) for word in words]
    return shlex.join([program, *words])


def python(*words: str | pathlib.PurePath) -> str:
    """Return the command line `python ...` with the running Python interpreter."""
    return command(sys.executable, *words)

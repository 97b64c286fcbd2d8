"""Format command lines that can be pasted into a POSIX shell."""

import os
import pathlib
import shlex
import sys


def command(program: str, *words: str | pathlib.PurePath) -> str:
    """Return a command line with every word quoted where the shell needs it.

    Args:
        program: Path of a program, shown relative to the current folder, or its name.
        *words: Arguments. A path that begins with a hyphen is written so that it is not taken for an option.
    """
    program = os.path.relpath(program) if os.path.isabs(program) else program
    return shlex.join([program, *map(_word, words)])


def python(*words: str | pathlib.PurePath) -> str:
    """Return the command line `python ...` with the running Python interpreter."""
    return command(sys.executable, *words)


def _word(word) -> str:
    if isinstance(word, pathlib.PurePath) and str(word).startswith("-"):
        return os.path.join(os.curdir, word)
    return str(word)

"""Command lines that are printed to be pasted into a shell: words that mean there what they say here."""

import os
import pathlib
import shlex
import sys


def command(program, *words) -> str:
    """A command line, every word quoted as it needs.

    Args:
        program: the file of a program, shown from the current folder, or its name.
        words: texts, and paths, of which none is taken for an option.
    """
    shown = os.path.relpath(program) if os.path.isabs(program) else program
    return shlex.join([shown, *map(_word, words)])


def python(*words) -> str:
    """The command line `python ...` with the Python that runs."""
    return command(sys.executable, *words)


def _word(word) -> str:
    if isinstance(word, pathlib.PurePath) and str(word).startswith("-"):
        return os.path.join(os.curdir, word)
    return str(word)

"""Import TensorFlow without its start-up messages, and suggest the nearest experiment for a mistyped name.

TensorFlow's C++ code writes its messages directly to file descriptor 2, some of them before any log level is read.
While TensorFlow starts, the descriptor is therefore redirected, and all lines but the known messages are printed later.
It is imported by whoever needs it first: `python -m experiments`, and workers on another backend, do not.
"""

import contextlib
import importlib.machinery
import os
import re
import sys
import tempfile

from experiments.frame.catalog import PACKAGE, docstrings, suggestion

KNOWN_MESSAGES = re.compile(
    rb"^\s*$|^I\d{4} |^WARNING: All log messages before absl|oneDNN custom operations|cpu_feature_guard|cuInit"
    rb"|To enable the following|Could not find cuda drivers|Unable to register cu|TF-TRT Warning|computation_placer"
)


@contextlib.contextmanager
def filtered_stderr():
    """Hold back what is written to file descriptor 2, and write all but the known messages at the end."""
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


class QuietLoader(importlib.machinery.SourceFileLoader):
    """Import a module with `filtered_stderr`; exit with status 2 where there is no folder for temporary files."""

    def exec_module(self, module):
        """Execute the module."""
        try:
            tempfile.gettempdir()
        except FileNotFoundError as error:
            print(f"experiments: {error.strerror}: set TMPDIR to a folder that can be written.", file=sys.stderr)
            sys.exit(2)
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # 1: warnings and errors only
        with filtered_stderr():
            super().exec_module(module)


class Finder:
    """Find `tensorflow` with a `QuietLoader`; for an unknown `experiments.NAME`, raise an error that suggests one."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return the spec of TensorFlow; None leaves all other modules to the next finder."""
        package, _, module = name.rpartition(".")
        if package == PACKAGE.name and not any((PACKAGE / file).exists() for file in (module, f"{module}.py")):
            raise ModuleNotFoundError(f"No module named {name!r}{suggestion(module, docstrings())}", name=name)
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == "tensorflow" else None
        if spec is not None and spec.origin:
            spec.loader = QuietLoader(name, spec.origin)
        return spec

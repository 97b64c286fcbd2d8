"""Start Keras: check that its backend is installed, and keep TensorFlow silent while it starts.

TensorFlow's C++ code writes its messages directly to file descriptor 2, whatever the log level. While it starts, the
descriptor is therefore redirected, and all lines but the known messages are printed later.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import re
import sys
import tempfile
from typing import NoReturn

from keras_seq.backends import BACKENDS, installed_backends

KNOWN_MESSAGES = re.compile(
    rb"^\s*$|^I\d{4} |^WARNING: All log messages before absl|oneDNN custom operations|cpu_feature_guard|cuInit"
    rb"|To enable the following|Could not find cuda drivers|Unable to register cu|TF-TRT Warning|computation_placer"
)


def start():
    """Prepare a program, before anything else of it is imported: streams, backend, the messages of TensorFlow.

    Without KERAS_BACKEND the backend is TensorFlow if it is installed, else JAX, else torch.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that the terminal's encoding lacks must not raise
            stream.reconfigure(errors="backslashreplace")
    if sys.stdin is None:  # closed
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        os.dup2(sys.stderr.fileno(), 2)
    if "KERAS_BACKEND" not in os.environ:
        os.environ["KERAS_BACKEND"] = next(iter(installed_backends()), BACKENDS[0])
    check_backend(os.environ["KERAS_BACKEND"])
    sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), QuietTensorFlow)


def check_backend(name: str):
    """Exit with status 2 and one sentence unless the backend can train and is installed; "" is Keras's own choice."""
    if name not in ("", *BACKENDS):
        refuse(f"KERAS_BACKEND={name}: expected tensorflow, jax or torch.")
    if name and importlib.util.find_spec(name) is None:
        expected = f'pip install "keras_seq[{name}]" there, or set KERAS_BACKEND to another: tensorflow, jax or torch'
        refuse(f"KERAS_BACKEND={name}: {name} is not installed in {sys.executable}; {expected}.")


def refuse(sentence: str) -> NoReturn:
    """Exit with status 2 and a sentence that names a mistake of the user."""
    print(sentence, file=sys.stderr)
    sys.exit(2)


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


class QuietTensorFlow(importlib.machinery.SourceFileLoader):
    """Finder and loader of the module `tensorflow`, whose start-up messages it drops."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Return the spec of TensorFlow; None leaves all other modules to the next finder."""
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == "tensorflow" else None
        if spec is not None and spec.origin:
            spec.loader = cls(name, spec.origin)
        return spec

    def exec_module(self, module):
        """Execute the module."""
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # warnings and errors only
        with filtered_stderr():
            super().exec_module(module)

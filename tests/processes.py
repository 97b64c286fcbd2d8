"""Processes in which some packages cannot be found, as where they are not installed."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
WITHOUT = """
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
def without(name, path=None, target=None):
    return None if name.split(".")[0] in {packages} else find_spec(name, path, target)
PathFinder.find_spec = staticmethod(without)
"""


def run_without(packages, folder, *arguments, **environment):
    """Run `python ...` where packages cannot be imported, in the processes it starts neither; None is no variable."""
    (folder / "sitecustomize.py").write_text(WITHOUT.format(packages=[*packages]), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu", **environment}
    environment = {name: value for name, value in environment.items() if value is not None}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def without_tensorflow(folder, backend, *arguments):
    """Run `python ...` where TensorFlow cannot be imported, in the processes it starts neither."""
    return run_without(["tensorflow"], folder, *arguments, KERAS_BACKEND=backend)

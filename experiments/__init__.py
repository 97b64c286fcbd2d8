"""Experiments: scripts, each run as `python -m experiments.NAME`; `python -m experiments` lists them.

Importing this package prepares the standard streams, checks that KERAS_BACKEND names a backend that is installed and
that no option is mistyped, and makes the first import of TensorFlow, the backend unless another one is named, a silent
one.
"""

import importlib.machinery
import os
import sys

from experiments.frame.backend import DEFAULT, check_backend
from experiments.frame.imports import Finder
from experiments.frame.option_names import check_names
from experiments.frame.streams import prepare_streams

prepare_streams()
check_backend(os.environ.get("KERAS_BACKEND"))
os.environ.setdefault("KERAS_BACKEND", DEFAULT)
if sys.argv[0] == "-m":  # `python -m experiments.NAME` imports this package before the module
    check_names(sys.orig_argv[sys.orig_argv.index("-m") + 1], sys.argv[1:])
sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), Finder)

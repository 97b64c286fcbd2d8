"""Experiments: scripts, each run as `python -m experiments.NAME`; `python -m experiments` lists them.

Importing this package prepares the standard streams and makes the first import of TensorFlow, Keras's backend unless
KERAS_BACKEND names another one, a silent one.
"""

import importlib.machinery
import os
import sys

from experiments.frame.imports import Finder
from experiments.frame.streams import prepare_streams

prepare_streams()
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), Finder)

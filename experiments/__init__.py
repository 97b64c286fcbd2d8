"""Experiments: scripts, each run as `python -m experiments.NAME`; `python -m experiments` lists them.

Importing this package prepares the standard streams and, where Keras's backend is TensorFlow (the default), imports
TensorFlow without its start-up messages. Worker processes of `experiments.benchmark` set KERAS_BACKEND to another one.
"""

import importlib.util
import os

from experiments.frame.streams import prepare_streams

prepare_streams()
if os.environ.setdefault("KERAS_BACKEND", "tensorflow") == "tensorflow" and importlib.util.find_spec("tensorflow"):
    from experiments.frame.startup import import_tensorflow

    import_tensorflow()

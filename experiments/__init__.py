"""Experiments: scripts, each run as `python -m experiments.NAME`. They run on Keras's TensorFlow backend.

Importing this package starts TensorFlow without its start-up notes, so that a script prints only what it has to say.
`experiments.gpu` and the processes it starts run on JAX instead, on machines that may have no TensorFlow.
"""

import os
import sys

from experiments.startup import start_tensorflow
from experiments.streams import ready_streams

ready_streams()
if not any(word.startswith("experiments.gpu") for word in sys.orig_argv):
    os.environ["KERAS_BACKEND"] = "tensorflow"  # tf.data, lookup tables and TensorBoard go with it
    start_tensorflow()

"""Experiments: scripts, each run as `python -m experiments.NAME`. They run on Keras's TensorFlow backend.

Importing this package starts TensorFlow without its log messages, so that a script prints only its own output.
`experiments.benchmark_gpu` and the processes it starts run on JAX instead, on machines that may have no TensorFlow.
"""

import os
import sys

from experiments.startup import start_tensorflow
from experiments.streams import ready_streams

ready_streams()
if not any(word.startswith(("experiments.benchmark_gpu", "experiments.gpu_")) for word in sys.orig_argv):
    os.environ["KERAS_BACKEND"] = "tensorflow"  # tf.data, lookup tables and TensorBoard need it
    start_tensorflow()

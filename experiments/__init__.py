"""Experiments: scripts, each run as `python -m experiments.NAME`, on Keras's TensorFlow backend.

Importing this package starts TensorFlow without its start-up messages. `experiments.benchmark_gpu` and its worker
processes run on JAX instead, on machines that may not have TensorFlow.
"""

import os
import sys

from experiments.startup import start_tensorflow
from experiments.streams import prepare_streams

prepare_streams()
if not any(word.startswith(("experiments.benchmark_gpu", "experiments.gpu")) for word in sys.orig_argv):
    os.environ["KERAS_BACKEND"] = "tensorflow"  # tf.data, lookup tables and TensorBoard need TensorFlow
    start_tensorflow()

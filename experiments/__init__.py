"""Experiments: scripts, each run as `python -m experiments.NAME`. They run on Keras's TensorFlow backend.

Importing this package starts TensorFlow without its start-up notes, so that a script prints only what it has to say.
"""

import os

from experiments.startup import start_tensorflow

os.environ["KERAS_BACKEND"] = "tensorflow"  # tf.data, lookup tables and TensorBoard go with it
start_tensorflow()

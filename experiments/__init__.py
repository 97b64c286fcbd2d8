"""Experiments: scripts, each run as `python -m experiments.NAME`; `python -m experiments` lists them.

Importing this package checks that KERAS_BACKEND names a backend that is installed, TensorFlow unless another is named,
and lets TensorFlow start without its messages.
"""

from keras_seq.commands.start import start

start()

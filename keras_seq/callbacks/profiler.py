"""A trace of a few training steps by TensorFlow's profiler: where does the time go?"""

import importlib.util
import pathlib

import keras
import tensorflow as tf

PLUGIN = "tensorboard_plugin_profile"


class Profiler(keras.callbacks.Callback):
    """Traces one execution of the training function (`steps_per_execution` steps), the second of a `fit`.

    The first one compiles. The trace goes to LOG_DIR/plugins/profile/TIME, where TensorBoard's Profile tab finds it.

    Args:
        log_dir: the run's folder.
    """

    def __init__(self, log_dir):
        super().__init__()
        self.log_dir = pathlib.Path(log_dir)

    def on_train_begin(self, logs=None):
        """Says so if the tab is not installed."""
        self._executions, self._tracing = 0, False
        if importlib.util.find_spec(PLUGIN) is None:
            print("TensorBoard shows the trace only where its Profile tab is: pip install tensorboard-plugin-profile.")

    def on_train_batch_begin(self, batch, logs=None):
        self._executions += 1
        if self._executions == 2:
            tf.profiler.experimental.start(str(self.log_dir))
            self._tracing = True

    def on_train_batch_end(self, batch, logs=None):
        self._stop()

    def on_train_end(self, logs=None):
        """Says so if there was no second execution."""
        if self._executions < 2:
            print("Profile traced nothing: there was only one execution, and that one compiles.")

    def _stop(self):
        if self._tracing:
            self._tracing = False
            tf.profiler.experimental.stop()

"""Record a trace of a few training steps with TensorFlow's profiler."""

import importlib.util
import pathlib

import keras

PLUGIN = "tensorboard_plugin_profile"


class Profiler(keras.callbacks.Callback):
    """Trace the second execution of the training function (`steps_per_execution` steps) of a `fit`.

    The first execution compiles. The trace is written to LOG_DIR/plugins/profile/TIME, for TensorBoard's Profile tab.

    Args:
        log_dir: Folder of the run.

    Raises:
        ValueError: If Keras's backend is not TensorFlow.
    """

    def __init__(self, log_dir: str | pathlib.Path):
        super().__init__()
        if (backend := keras.backend.backend()) != "tensorflow":
            raise ValueError(f"Profiler: the backend is {backend!r}; expected 'tensorflow', or use {backend}.profiler.")
        import tensorflow as tf  # here, as the other backends do without it

        self._profiler = tf.profiler.experimental
        self.log_dir = pathlib.Path(log_dir)

    def on_train_begin(self, logs=None):
        """Print a message if the Profile tab is not installed."""
        self._executions, self._tracing = 0, False
        if importlib.util.find_spec(PLUGIN) is None:
            print("TensorBoard needs its Profile tab to show the trace: pip install tensorboard-plugin-profile.")

    def on_train_batch_begin(self, batch, logs=None):
        """Start the trace before the second execution."""
        self._executions += 1
        if self._executions == 2:
            self._profiler.start(str(self.log_dir))
            self._tracing = True

    def on_train_batch_end(self, batch, logs=None):
        """Stop the trace."""
        self._stop()

    def on_train_end(self, logs=None):
        """Print a message if there was no second execution."""
        if self._executions < 2:
            print("Profiler traced nothing: there was only one execution, which compiles.")

    def _stop(self):
        if self._tracing:
            self._tracing = False
            self._profiler.stop()

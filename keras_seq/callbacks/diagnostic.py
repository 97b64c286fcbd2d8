"""Define the base class of callbacks that compute diagnostics of a model and write them to TensorBoard.

train_language_model(..., diagnostics=[AttentionMaps(...)])               computed at every validation
model.fit(..., callbacks=[AttentionMaps(..., log_dir="logs/mine")])       computed in any Keras `fit`
"""

import pathlib

import keras

from keras_seq import checks
from keras_seq.generation.uncached_model import required_arguments
from keras_seq.layers import Stateful
from keras_seq.layers.introspection import iter_layers
from keras_seq.tracking.event_records import EventFile
from keras_seq.tracking.summaries import Summaries
from keras_seq.tracking.tensorboard import TOKENS_AXIS, summary_protos


def says_nothing(name: str, model: keras.Model, missing: str) -> str:
    """Return the message of a callback that does not apply to a model.

    Args:
        name: Name of the callback's class.
        model: The model.
        missing: What the model lacks, as a phrase that follows "has no".
    """
    remedy = ""
    if model_arguments(model) or any(isinstance(inner, keras.Model | Stateful) for inner in [*iter_layers(model)][1:]):
        remedy = " Pass a model that has it, of the same layers, as model= (docs/tensorboard.md)."
    return f"{name} shows nothing of {model.name}, which has no {missing}.{remedy}"


def model_arguments(model: keras.Model, count: int = 1) -> str | None:
    """Return a phrase if a model does not take so many tensors; None if it does, or if that is unknown.

    Args:
        model: Any Keras model.
        count: Number of tensors in its inputs.
    """
    inputs = getattr(model, "inputs", None)
    names = [x.name for x in inputs] if inputs else required_arguments(model)
    if len(names) == count or (not inputs and len(names) <= 1):
        return None
    return f"call on {count} input{'s' * (count > 1)}: it takes {', '.join(names)}"


class Diagnostic(keras.callbacks.Callback):
    """Compute summaries of a model at intervals; subclasses define `compute_summaries` and `missing_requirement`.

    Args:
        log_dir: Folder of the run; required in `fit`.
        update_freq: Steps between two computations; by default once at the end of each epoch.
        tokens_per_step: Position on the axis per step: that of `TokenTensorBoard`, or 1 for steps.
        model: The model to examine if `fit` trains another one that contains it, as with `Stateful`; by default the
            one that `fit` trains.

    Raises:
        ValueError: If a number is not an integer of at least 1; in `fit`, if there is no log_dir.
        OSError: In `fit`, if the event file cannot be written.
    """

    def __init__(
        self,
        log_dir: str | pathlib.Path | None = None,
        update_freq: int | None = None,
        tokens_per_step: int = 1,
        model: keras.Model | None = None,
    ):
        super().__init__()
        for name, value in (("update_freq", update_freq), ("tokens_per_step", tokens_per_step)):
            if value is not None:
                checks.positive_integer(f"{type(self).__name__}: {name}", value)
        self.log_dir, self.update_freq, self.tokens_per_step = log_dir, update_freq, tokens_per_step
        self.wrapped_model = model

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return the diagnostics of a model in its current state; empty if it lacks the requirement."""
        raise NotImplementedError

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return what a model lacks for this diagnostic, as a phrase for a message; None if it lacks nothing."""
        raise NotImplementedError

    def try_model(self, model: keras.Model) -> None:
        """Call a model as `compute_summaries` does, so that an error comes before an epoch is spent."""

    def on_train_begin(self, logs=None):
        """Create the event file; print a message if there will be nothing to show."""
        name = type(self).__name__
        if self.log_dir is None:
            raise ValueError(
                f"{name}: log_dir=None; expected a folder: in `Model.fit` the callback writes its own event file."
            )
        model = self._target_model
        missing = self.missing_requirement(model)
        if missing:
            print(says_nothing(name, model, missing))
        else:
            self._try(model)
        self._file = None if missing else EventFile(self.log_dir)
        self._last_step = self._step

    def on_train_batch_end(self, batch, logs=None):
        """Write the diagnostics at each multiple of `update_freq`."""
        if self.update_freq is not None and self._step // self.update_freq > self._last_step // self.update_freq:
            self._write()

    def on_epoch_end(self, epoch, logs=None):
        """Write the diagnostics if there is no `update_freq`."""
        if self.update_freq is None:
            self._write()

    def _try(self, model):
        try:
            self.try_model(model)
        except Exception as error:  # of somebody's own model
            error.add_note(
                f"{type(self).__name__} calls {model.name} by itself; if `fit` trains a wrapper of the model to "
                "examine, pass that as model= (docs/tensorboard.md)."
            )
            raise

    @property
    def _step(self):
        return int(self.model.optimizer.iterations)

    @property
    def _target_model(self):
        return self.model if self.wrapped_model is None else self.wrapped_model

    def _write(self):
        self._last_step = self._step
        if self._file is not None:
            summaries = self.compute_summaries(self._target_model)
            axis = "optimizer steps" if self.tokens_per_step == 1 else TOKENS_AXIS
            self._file.write(self._step * self.tokens_per_step, summary_protos(summaries, axis))

"""Compute diagnostics of a model while it trains, and write them to TensorBoard.

    train_language_model(..., diagnostics=[AttentionMaps(...)])               computed at every validation
    model.fit(..., callbacks=[AttentionMaps(..., log_dir="logs/mine")])       computed in any Keras `fit`

`Diagnostic` is their base class. `LossByPosition` shows how much a model gains from context, as in Kaplan et al. (2020,
arXiv:2001.08361, figure 7): an LSTM's loss is flat after some hundred positions, a Transformer's falls further.

    loss[t] = mean over windows of  -log p(id at t + 1 | the ids up to t of that window)

`TextSamples` shows what it generates; `Profiler` is no diagnostic, but records a trace of a training step.
"""

import importlib.util
import math
import pathlib
from collections.abc import Iterable

import keras
import numpy as np

from keras_seq import checks
from keras_seq.evaluation.evaluator import get_evaluator
from keras_seq.evaluation.streaming import sample_windows
from keras_seq.generation import generate
from keras_seq.generation.uncached_model import UncachedModel, required_arguments
from keras_seq.layers import Stateful
from keras_seq.layers.introspection import iter_layers
from keras_seq.tokenizers.base import show_whitespace
from keras_seq.tracking.summaries import Summaries, to_pixels
from keras_seq.tracking.tensorboard import TOKENS_AXIS, EventFile, num_batches, summary_protos

PROFILE_PLUGIN = "tensorboard_plugin_profile"
DESCRIPTIONS = {
    "loss_by_position": "Loss by position in a window, in nats per token. The line is the mean over the last quarter "
    "of the positions up to each. log V is the loss of a model that finds all V tokens equally likely.",
}


def says_nothing(name: str, model: keras.Model, missing: str) -> str:
    """Return the message of a callback that does not apply to a model."""
    remedy = ""
    if model_arguments(model) or any(isinstance(inner, keras.Model | Stateful) for inner in [*iter_layers(model)][1:]):
        remedy = " Pass a model that has it, of the same layers, as model= (docs/tensorboard.md)."
    return f"{name} shows nothing of {model.name}, which has no {missing}.{remedy}"


def model_arguments(model: keras.Model, count: int = 1) -> str | None:
    """Return a phrase if a model does not take so many tensors; None if it does, or if that is unknown."""
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
        if missing := self.missing_requirement(model):
            print(says_nothing(name, model, missing))
        else:
            try:
                self.try_model(model)
            except Exception as error:  # of somebody's own model
                error.add_note(
                    f"{name} calls {model.name} by itself; if `fit` trains a wrapper of the model to examine, pass "
                    "that as model= (docs/tensorboard.md)."
                )
                raise
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
            steps = self._step if self.tokens_per_step == 1 else num_batches(self.model.optimizer)
            self._file.write(steps * self.tokens_per_step, summary_protos(summaries, axis))


class LossByPosition(Diagnostic):
    """Write a plot of the loss by position, and curves of the loss at positions 0, 6 to 7, 48 to 63, ..., and the last.

    ```python
    LossByPosition(tokenizer.encode(validation_text), sequence_length=64, log_dir="logs/mine")
    ```

    Some hundred windows leave much noise in the loss at one position, so the curves are means over the last quarter of
    the positions up to 7, 63, ...; metrics.jsonl has the losses at positions 0, 7, 63, ... as `loss_by_position/7`.
    The model is any from ids `[B, T]` to logits `[B, T, V]`.

    Args:
        ids: Integers `[N]` that are not trained on.
        sequence_length: T, tokens of a window.
        max_windows: Maximum number of windows to score, spread evenly over the ids; None scores all.
        **kwargs: Arguments of `Diagnostic`.

    Raises:
        ValueError: If the ids are fewer than a window and the next id, or a number is below 1.
    """

    def __init__(self, ids, sequence_length: int, max_windows: int | None = 256, **kwargs):
        super().__init__(**kwargs)
        checks.positive_integer("LossByPosition: sequence_length", sequence_length)
        if max_windows is not None:
            checks.positive_integer("LossByPosition: max_windows", max_windows)
        if len(ids) <= sequence_length:
            count = f"{len(ids)} ids, sequence_length={sequence_length}"
            raise ValueError(f"LossByPosition: {count}; expected at least one window and one more id.")
        self.ids, self.sequence_length = np.asarray(ids), sequence_length
        self.sample = sample_windows(self.ids, sequence_length, max_windows or len(ids))

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return a phrase if the model takes more than ids; every language model has losses."""
        return model_arguments(model)

    def try_model(self, model: keras.Model) -> None:
        """Score one window."""
        get_evaluator(model).chunked_token_losses(self.ids[: self.sequence_length + 1], self.sequence_length)

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return the plot and the losses at a few positions."""
        evaluator = get_evaluator(model)
        losses = evaluator.chunked_token_losses(self.ids, self.sequence_length, self.sample)
        mean = losses.mean(axis=0, dtype="float64")
        smoothed, starts = quarter_means(mean)
        positions = [t for t in (8**n - 1 for n in range(8)) if t < self.sequence_length]
        scalars = {f"loss_by_position/{t}": float(mean[t]) for t in positions}
        curves, descriptions = {}, {}
        for t in dict.fromkeys([*positions, self.sequence_length - 1]):
            where = f"positions {starts[t]} to {t}" if starts[t] < t else f"position {t}"
            name = f"loss_by_position/{where.partition(' ')[2]}"
            curves[name] = float(smoothed[t])
            descriptions[name] = f"Loss at {where} (nats per token)."
        image = plot_loss_by_position(mean, len(losses), evaluator.vocabulary_size)
        return Summaries(scalars, {}, {"loss_by_position": image}, {}, curves, {**DESCRIPTIONS, **descriptions})


def quarter_means(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each position the mean over the last quarter of those up to it, and where that quarter starts."""
    ends = np.arange(1, len(losses) + 1)
    starts = ends - np.maximum(ends // 4, 1)
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    return (sums[ends] - sums[starts]) / (ends - starts), starts


def plot_loss_by_position(mean_losses: np.ndarray, windows: int, vocabulary_size: int | None = None) -> np.ndarray:
    """Plot the loss over a logarithmic axis of positions: a dot for each, a line for the means over a quarter."""
    from matplotlib.figure import Figure  # here, as only plots need it

    figure = Figure(figsize=(3.5, 2.8), layout="constrained")
    axes = figure.subplots()
    context = np.arange(1, len(mean_losses) + 1)
    axes.plot(context, mean_losses, ".", alpha=0.3, markeredgewidth=0)
    axes.plot(context, quarter_means(mean_losses)[0], color="C0")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda position, _: f"{position:g}")
    axes.set_ylim(0)
    if vocabulary_size is not None:
        uniform = math.log(vocabulary_size)
        axes.axhline(uniform, color="0.5", linestyle=":")
        style = {"ha": "right", "va": "top", "fontsize": 8, "color": "0.4"}
        axes.text(len(mean_losses), 0.98 * uniform, f"uniform: log {vocabulary_size:,}", **style)
        axes.set_ylim(0, 1.05 * max(uniform, mean_losses.max()))
    axes.set_xlabel(f"tokens of context ({windows:,} windows)")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return to_pixels(figure)


class TextSamples(Diagnostic):
    """Write text samples under the Text tab, as `sample/PROMPT`, of any model that `keras_seq.generate` takes.

    ```python
    TextSamples(tokenizer, ["ROMEO:", "The "], log_dir="logs/mine")
    ```

    Args:
        tokenizer: Tokenizer of the model's ids.
        prompts: Texts of at least one token.
        max_new_tokens: Tokens to generate after each prompt.
        log_dir, update_freq, tokens_per_step, model: As for `Diagnostic`.
        **options: Options of `keras_seq.generate`: temperature (0.8 by default), top_p, seed, ...
    """

    def __init__(
        self,
        tokenizer,
        prompts: str | Iterable[str],
        max_new_tokens: int = 300,
        log_dir: str | pathlib.Path | None = None,
        update_freq: int | None = None,
        tokens_per_step: int = 1,
        model: keras.Model | None = None,
        **options,
    ):
        super().__init__(log_dir, update_freq, tokens_per_step, model)
        self.prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        self.tokenizer, self.max_new_tokens = tokenizer, max_new_tokens
        self.options = {"temperature": 0.8, **options}

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return a phrase if the model takes more than ids or gives no logits.

        Raises what `generate` would raise of one that does.
        """
        if hasattr(model, "step"):
            return None
        if missing := model_arguments(model):
            return missing
        shape = getattr(model, "output_shape", None)  # a subclassed model has none
        can_generate = (shape is None or len(shape) == 3) and UncachedModel(model)
        return None if can_generate else "step(ids, state) and no logits [B, T, V], without which it generates no text"

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return one sample per prompt."""
        if self.missing_requirement(model):
            return Summaries({})
        texts = generate(model, self.tokenizer, self.prompts, self.max_new_tokens, **self.options)
        samples = zip(self.prompts, texts, strict=True)
        return Summaries({}, {f"sample/{show_whitespace(prompt)}": text for prompt, text in samples})


class Profiler(keras.callbacks.Callback):
    """Trace the second execution of the training function (`steps_per_execution` steps) with TensorFlow's profiler.

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
        self._executions = 0
        if importlib.util.find_spec(PROFILE_PLUGIN) is None:
            print("TensorBoard needs its Profile tab to show the trace: pip install tensorboard-plugin-profile.")

    def on_train_batch_begin(self, batch, logs=None):
        """Start the trace before the second execution."""
        self._executions += 1
        if self._executions == 2:
            self._profiler.start(str(self.log_dir))

    def on_train_batch_end(self, batch, logs=None):
        """Stop the trace after it."""
        if self._executions == 2:
            self._profiler.stop()

    def on_train_end(self, logs=None):
        """Print a message if there was no second execution."""
        if self._executions < 2:
            print("Profiler traced nothing: there was only one execution, which compiles.")

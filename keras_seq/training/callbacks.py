"""What happens between the steps. Each callback reads the step from the optimizer, which is the only clock."""

import json
import math
import pathlib
import signal
import threading
import time

import keras
from tqdm import tqdm

from keras_seq.training import checkpoints
from keras_seq.training.files import write_text


class Diverged(RuntimeError):
    """A loss or gradient that is no longer a number."""


class Interrupted(Exception):
    """Training stopped on request; a checkpoint is written."""


class _AtSteps(keras.callbacks.Callback):
    """Calls `at(step, logs)` whenever the step has reached a multiple of `every`, and at the last step."""

    def __init__(self, every, last):
        super().__init__()
        self.every = every
        self.last = last

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        if step % self.every == 0 or step == self.last:
            self.at(step, logs)


class NumbersGuard(keras.callbacks.Callback):
    """Stops at the first loss or gradient that is not a number, and names its step."""

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        step, now = int(optimizer.first_bad_step), int(optimizer.iterations)
        if step >= 0:
            what = f"The gradient of step {step} is not a number"
        elif not math.isfinite(logs["loss"]):
            what = f"The loss is {float(logs['loss'])} by step {now}"
        else:
            return
        raise Diverged(
            f"{what}: training has diverged. Checkpoints from before it are kept; "
            "try a smaller --train.learning-rate, a longer --train.warmup-steps or --train.precision float32."
        )


class Progress(keras.callbacks.Callback):
    """A bar on the terminal: tokens, tokens per second, time left, loss."""

    def __init__(self, name, tokens_per_step, first, last):
        super().__init__()
        self.tokens_per_step = tokens_per_step
        self.bar = tqdm(
            desc=name,
            total=last * tokens_per_step,
            initial=first * tokens_per_step,
            unit="tok",
            unit_scale=True,
            dynamic_ncols=True,
            disable=None,
        )

    def on_train_batch_end(self, batch, logs=None):
        self.bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)
        self.bar.update(int(self.model.optimizer.iterations) * self.tokens_per_step - self.bar.n)

    def on_train_end(self, logs=None):
        self.bar.close()


class Record(_AtSteps):
    """The training curve: a line of metrics.jsonl and a point in TensorBoard at the end of every interval.

    The loss of an interval is the mean over its tokens; Keras's running sums start anew after it. `seconds` is the
    time spent in steps, the compilation among them, without validation and checkpoints.
    """

    def __init__(self, path, board, tokens_per_step, every, last, characters_per_token=None):
        super().__init__(every, last)
        self.path, self.board, self.tokens_per_step = pathlib.Path(path), board, tokens_per_step
        self.characters_per_token = characters_per_token
        self.seconds, self.loss = 0.0, None
        self._since = (0.0, 0)  # seconds and step of the last point

    def go_on_from(self, step):
        """Takes up the curve at `step`: the lines after it are dropped, for they will be written again."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill may have torn the last one
        kept = [line for line in whole if line["step"] <= step]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        for line in kept:
            if line["split"] == "train":
                self.seconds, self.loss = line["seconds"], line["nats_per_token"]
        self._since = (self.seconds, step)

    def on_train_begin(self, logs=None):
        self._open_sums = [keras.ops.convert_to_numpy(v) for v in self.model.metrics_variables]

    def on_epoch_begin(self, epoch, logs=None):
        """Gives back the sums of an interval that a checkpoint left open; Keras has just set them to zero."""
        for variable, value in zip(self.model.metrics_variables, self._open_sums, strict=True):
            variable.assign(value)

    def on_train_batch_begin(self, batch, logs=None):
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds += time.perf_counter() - self._begun
        super().on_train_batch_end(batch, logs)

    def at(self, step, logs):
        """Writes the point."""
        optimizer = self.model.optimizer
        seconds, before = self._since
        self._since, self.loss = (self.seconds, step), float(logs["loss"])
        line = {
            "step": step,
            "tokens": step * self.tokens_per_step,
            "split": "train",
            "nats_per_token": self.loss,
            **self._bits(),
            "learning_rate": float(optimizer.learning_rate),
            "gradient_norm": float(optimizer.gradient_norm),
            "tokens_per_second": (step - before) * self.tokens_per_step / (self.seconds - seconds),
            "seconds": self.seconds,
        }
        self.write(line)
        self.board.record(
            line["tokens"],
            {"loss": self.loss, **{name: line[name] for name in ("gradient_norm", "tokens_per_second")}},
        )
        self.model.reset_metrics()

    def _bits(self):
        if self.characters_per_token is None:
            return {}
        return {"bits_per_character": self.loss / self.characters_per_token / math.log(2)}

    def write(self, line):
        """Appends one line to metrics.jsonl."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Validate(_AtSteps):
    """Measures the model every so many steps and at the last one; `latest` is what was measured last.

    Args:
        measure: a function without arguments that gives a `Measured`.
        record: where its figures go.
        every, last: steps.
    """

    def __init__(self, measure, record, every, last):
        super().__init__(every, last)
        self.measure, self.record = measure, record
        self.latest = None

    def at(self, step, logs):
        """Writes the figures, the texts and the pictures."""
        self.latest = self.measure()
        tokens = step * self.record.tokens_per_step
        self.record.write({"step": step, "tokens": tokens, "split": "validation", **self.latest.figures})
        self.record.board.show(tokens, self.latest)
        tqdm.write(f"{tokens:>12,} tokens   training {float(logs['loss']):.4f}   {self.latest.line}")


class Checkpoints(_AtSteps):
    """Writes a checkpoint every so many steps, and when the user asks to stop (Ctrl-C or SIGTERM)."""

    def __init__(self, folder, every, last):
        super().__init__(every, last)
        self.folder = folder
        self.asked = None
        self._handlers = {}

    def on_train_begin(self, logs=None):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._ask)

    def _ask(self, number, frame):
        if self.asked is not None:  # asked twice: at once, without a checkpoint
            raise KeyboardInterrupt
        self.asked = number
        tqdm.write("Stopping after the steps that are running ...")

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        if self.asked is not None:
            path = checkpoints.save(self.folder, self.model)
            raise Interrupted(path)

    def at(self, step, logs):
        """Writes it."""
        checkpoints.save(self.folder, self.model)

    def restore_handlers(self):
        """Gives the signals back to whoever had them before."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

"""The curves of a run: a line of metrics.jsonl and a point in TensorBoard for everything that is measured."""

import itertools
import json
import math
import os
import pathlib
import time
import warnings

import keras

from keras_seq.atomic_files import set_aside, sync, write_text
from keras_seq.tracking.event_files import sizes
from keras_seq.training.checkpoints import CheckpointError
from keras_seq.training.loop_callbacks import EveryNSteps

LOSS_KEYS = {"train": "loss", "validation": "val_loss"}  # the loss in a line of metrics.jsonl, by its split


def read_metrics(path) -> list[dict]:
    """The lines of the metrics.jsonl of a finished run.

    Raises:
        CheckpointError: a line is damaged.
        OSError: it is not there, or may not be read.
    """
    path = pathlib.Path(path)
    found = [_line(text) for text in path.read_bytes().splitlines()]
    if None in found:
        remedy = f"put it back from a copy, or remove {path.parent} to have it trained anew"
        raise CheckpointError(f"{path}: line {found.index(None) + 1} is damaged: {remedy}.")
    return found


def _line(text) -> dict | None:
    """A line as `Record.write` wrote it; None for a damaged one."""
    try:
        line = json.loads(text)
        whole = type(line["tokens"]) is int and isinstance(line["split"], str)
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return line if whole else None


class MetricsLogger(EveryNSteps):
    """The training curve: a line and a point at the end of every interval.

    The loss of an interval is the mean over its tokens; Keras's running sums start anew after it. `seconds` is the
    time spent in steps, the compilation among them, without validation and checkpoints; `step` is the last one.
    """

    def __init__(self, path, board, tokens_per_step, every, last, characters_per_token=None):
        super().__init__(every, last)
        self.path, self.board, self.tokens_per_step = pathlib.Path(path), board, tokens_per_step
        self.characters_per_token = characters_per_token
        self.seconds, self.loss, self.step = 0.0, None, 0
        self.tokens_per_second = 0.0
        self.point, self._since = 0, (0.0, 0)  # the step of the last point; seconds and step that speed counts from

    def resume_at(self, step, vouched=b"") -> list[dict]:
        """Takes up the curve at `step`: the lines after it are dropped, for they will be written again.

        Args:
            step: that of the checkpoint.
            vouched: the lines as the checkpoint has them. Where the file does not begin with them it is damaged or
                gone, and is written again from them with a warning.

        Returns:
            The lines that are kept: those, and what was noted at that step since.
        """
        text = self.path.read_bytes() if self.path.is_file() else b""
        if not text.startswith(vouched):
            fault = "damaged" if self.path.exists() else "gone"
            again = f"the lines up to step {step:,} are written again from the checkpoint{set_aside(self.path)}"
            warnings.warn(f"{self.path} is {fault}: {again}.", stacklevel=2)
            text = vouched
        since = (_line(line) for line in text[len(vouched) :].splitlines(keepends=True) if line.endswith(b"\n"))
        noted = itertools.takewhile(lambda line: line is not None and line.get("step", math.inf) <= step, since)
        kept = [*map(_line, vouched.splitlines(keepends=True)), *noted]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        for line in kept:
            if line["split"] == "train":
                self.seconds, self.loss, self.point = line["seconds"], line["loss"], line["step"]
                self.tokens_per_second = line["tokens_per_second"]
        self.step, self._since = step, (self.seconds, step)
        return kept

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
        self.step = int(self.model.optimizer.iterations)
        super().on_train_batch_end(batch, logs)

    def at(self, step, logs):
        """Writes the point of the interval, unless it has just been written."""
        optimizer = self.model.optimizer
        if step == self.point:
            return
        seconds, before = self._since
        if step > before:
            self.tokens_per_second = (step - before) * self.tokens_per_step / (self.seconds - seconds)
        self.point, self._since, self.loss = step, (self.seconds, step), float(logs["loss"])
        line = {
            "loss": self.loss,
            **self._bits(),
            "learning_rate": float(optimizer.learning_rate),
            "gradient_norm": float(optimizer.gradient_norm),
            "tokens_per_second": self.tokens_per_second,
            "seconds": self.seconds,
        }
        self.write(step, "train", line)
        self.board.record(
            step * self.tokens_per_step,
            {"loss": self.loss, **{name: line[name] for name in ("gradient_norm", "tokens_per_second")}},
        )
        self.model.reset_metrics()

    def _bits(self):
        if self.characters_per_token is None:
            return {}
        return {"bits_per_character": self.loss / self.characters_per_token / math.log(2)}

    def write(self, step, split, scalars):
        """Appends one line to metrics.jsonl."""
        line = {"step": step, "tokens": step * self.tokens_per_step, "split": split, **scalars}
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:  # a full disk names no file
            raise type(error)(error.errno, error.strerror or os.strerror(error.errno), str(self.path)) from error

    def flush(self):
        """Makes everything durable that was written so far."""
        sync(self.path)
        self.board.flush()
        run = self.path.parent
        for name in sizes(run):
            sync(run / name)

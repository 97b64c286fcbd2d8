"""Log the curves of a run: one line of metrics.jsonl and one point in the trackers for each measurement.

    {"step": 50, "tokens": 38400, "split": "train", "loss": 2.1, "learning_rate": ..., "seconds": ...}

metrics.jsonl is the truth. Each checkpoint has a copy of it, and a resumed run takes it back to that copy.
"""

import contextlib
import itertools
import json
import math
import os
import pathlib
import time
import warnings
from collections.abc import Iterator

import keras

from keras_seq.files import set_aside, sync, write_text
from keras_seq.tracking.tensorboard import TRAIN_KEYS
from keras_seq.tracking.tracker import Tracker
from keras_seq.training.checkpoints import CheckpointError

METRICS = "metrics.jsonl"
OTHER_PARTS = ("validation", "diagnostics", "checkpoints", "final_validation")  # of a training, besides its steps
LOSS_KEYS = {"train": "loss", "validation": "val_loss"}  # the loss in a line of metrics.jsonl, by its split


def read_metrics(run: str | pathlib.Path, split: str | None = None) -> list[dict]:
    """Return the lines of a finished run's metrics.jsonl.

    Args:
        run: Folder of the run, or path of its metrics.jsonl.
        split: Return only the lines of this split: "train", "validation" or "rollback"; None returns all.

    Returns:
        One dict a line, with `step`, `tokens` and `split`; logs/README.md lists the other keys.

    Raises:
        CheckpointError: If a line is corrupt.
        OSError: If the file is missing or may not be read.
    """
    path = pathlib.Path(run)
    path = path / METRICS if path.is_dir() else path
    lines = [_parse_line(text) for text in path.read_bytes().splitlines()]
    if None in lines:
        remedy = f"restore it from a copy, or remove {path.parent} to train this run anew"
        raise CheckpointError(f"{path}: line {lines.index(None) + 1} is corrupt: {remedy}.")
    return [line for line in lines if split in (None, line["split"])]


def _parse_line(text) -> dict | None:
    """Return a line as `MetricsLogger.write` wrote it; None if it is corrupt."""
    try:
        line = json.loads(text)
        valid = type(line["tokens"]) is int and isinstance(line["split"], str)
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return line if valid else None


class EveryNSteps(keras.callbacks.Callback):
    """Call `on_interval(step, logs)` at each multiple of `every` and at the last step."""

    def __init__(self, every: int, last_step: int):
        super().__init__()
        self.every, self.last_step = every, last_step

    def is_due(self, step: int) -> bool:
        """Return whether a step ends an interval."""
        return step % self.every == 0 or step == self.last_step

    def on_train_batch_end(self, batch, logs=None):
        """Call `on_interval` if the optimizer's step ends an interval."""
        step = int(self.model.optimizer.step)
        if self.is_due(step):
            self.on_interval(step, logs)


class MetricsLogger(EveryNSteps):
    """Log the training curve: a line of metrics.jsonl and a point of the tracker at the end of every interval.

    The loss of an interval is the mean over its tokens, in nats; Keras's running sums are reset after it. `seconds` is
    the time spent in steps, compilation included, and `other_seconds` that in each of OTHER_PARTS. A resumed run counts
    no time that a killed one spent after its last point.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        tracker: Tracker,
        tokens_per_step: int,
        every: int,
        last_step: int,
        characters_per_token: float | None = None,
    ):
        super().__init__(every, last_step)
        self.path, self.tracker, self.tokens_per_step = pathlib.Path(path), tracker, tokens_per_step
        self.characters_per_token = characters_per_token
        self.seconds, self.loss, self.step = 0.0, None, 0
        self.other_seconds = dict.fromkeys(OTHER_PARTS, 0.0)
        self.tokens_per_second = 0.0
        self.last_point = 0  # step of the last line
        self._speed_start = (0.0, 0)  # seconds and step from which the speed is measured

    def resume_at(self, step: int, checkpoint_metrics: bytes = b"") -> list[dict]:
        """Continue the curve at the step of a checkpoint, and return the lines that are kept.

        Later lines are dropped, because they will be written again. A file that does not begin with the checkpoint's
        copy is corrupt or missing, and is rebuilt from it with a warning.
        """
        text = self.path.read_bytes() if self.path.is_file() else b""
        if not text.startswith(checkpoint_metrics):
            problem = "corrupt" if self.path.exists() else "missing"
            remedy = f"the lines up to step {step:,} are restored from the checkpoint{set_aside(self.path)}"
            warnings.warn(f"{self.path} is {problem}: {remedy}.", stacklevel=2)
            text = checkpoint_metrics
        tail = text[len(checkpoint_metrics) :].splitlines(keepends=True)
        later = (_parse_line(line) for line in tail if line.endswith(b"\n"))
        same_step = itertools.takewhile(lambda line: line is not None and line.get("step", math.inf) <= step, later)
        lines = [*map(_parse_line, checkpoint_metrics.splitlines(keepends=True)), *same_step]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in lines))
        for line in lines:
            if line["split"] == "train":
                self.seconds, self.loss, self.last_point = line["seconds"], line["loss"], line["step"]
                self.tokens_per_second = line["tokens_per_second"]
                self.other_seconds |= line.get("other_seconds", {})
        self.step, self._speed_start = step, (self.seconds, step)
        return lines

    @contextlib.contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Add the duration of a `with` block to `other_seconds`."""
        start_time = time.perf_counter()
        try:
            yield
        finally:
            self.other_seconds[part] += time.perf_counter() - start_time

    def on_train_begin(self, logs=None):
        """Keep the sums of a logging interval that the checkpoint cut."""
        self._partial_sums = [keras.ops.convert_to_numpy(v).copy() for v in self.model.metrics_variables]

    def on_epoch_begin(self, epoch, logs=None):
        """Restore those sums: Keras has just reset them."""
        for variable, value in zip(self.model.metrics_variables, self._partial_sums, strict=True):
            variable.assign(value)

    def on_train_batch_begin(self, batch, logs=None):
        """Start the clock."""
        self._batch_start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Stop the clock, and log if the step ends an interval."""
        self.seconds += time.perf_counter() - self._batch_start
        self.step = int(self.model.optimizer.step)
        super().on_train_batch_end(batch, logs)

    def on_interval(self, step: int, logs: dict):
        """Write the point of the interval, unless this step has one."""
        optimizer = self.model.optimizer
        if step == self.last_point:
            return
        seconds, start_step = self._speed_start
        if step > start_step:
            self.tokens_per_second = (step - start_step) * self.tokens_per_step / (self.seconds - seconds)
        self.last_point, self._speed_start, self.loss = step, (self.seconds, step), float(logs["loss"])
        characters = self.characters_per_token
        bits = {} if characters is None else {"bits_per_character": self.loss / characters / math.log(2)}
        line = {
            "loss": self.loss,
            **bits,
            "learning_rate": float(optimizer.learning_rate),
            "gradient_norm": float(optimizer.gradient_norm),
            "tokens_per_second": self.tokens_per_second,
            "seconds": self.seconds,
            "other_seconds": dict(self.other_seconds),
        }
        self.write(step, "train", line)
        self.tracker.record(step * self.tokens_per_step, {key: line[key] for key in TRAIN_KEYS})
        self.model.reset_metrics()

    def write(self, step: int, split: str, scalars: dict):
        """Append one line to metrics.jsonl."""
        line = {"step": step, "tokens": step * self.tokens_per_step, "split": split, **scalars}
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:  # the error of a full disk has no file name
            raise type(error)(error.errno, error.strerror or os.strerror(error.errno), str(self.path)) from error

    def flush(self):
        """Make all lines written so far durable (fsync)."""
        sync(self.path)

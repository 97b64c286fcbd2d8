"""Send a run to an experiment tracker beside TensorBoard, trackio or Weights & Biases (wandb); show its progress.

TensorBoard's files are always written. They alone have images, histograms and the HParams page. The other trackers get
the settings, the curves under TensorBoard's tags, and the texts. Their packages are imported where one is asked for.
"""

import contextlib
import contextvars
import html
import importlib
import os
import pathlib
import re
import sys
import types
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import keras
from tqdm import tqdm

from keras_seq.files import write_text
from keras_seq.tracking.summaries import Summaries
from keras_seq.tracking.tensorboard import TokenTensorBoard, code_block, scalar_tag, validation_key

RUN_ID = "tracker.txt"  # the name under which a tracker resumes the run


class Tracker(Protocol):
    """Record a run as it trains; `TokenTensorBoard` is one."""

    def write_settings(self, settings: Mapping[str, Any], model: keras.Model):
        """Write what the run was asked for, JSON values by dotted name, before anything else."""

    def record(self, tokens: int, logs: Mapping[str, float]):
        """Write a point of each curve, by the keys of metrics.jsonl, after so many training tokens."""

    def write(self, tokens: int, summaries: Summaries):
        """Write the summaries of a validation."""


class TrackioRun:
    """Record a run with trackio beside TensorBoard, as a context manager that ends the run; wandb's is derived from it.

    The run is called like its folder, with an id that is kept in the folder, so that a resumed training goes on in the
    same run; steps that are repeated after a kill are sent again. Its group is the folder around it, its project
    `keras_seq` or the environment variable TRACKIO_PROJECT.
    """

    package = "trackio"

    def __init__(self, folder: str | pathlib.Path, board: Tracker):
        self.folder, self.module, self.run = pathlib.Path(folder).resolve(), import_tracker(self.package), None
        self.board = board

    def __enter__(self):
        """Return the tracker; the run starts with its settings."""
        return self

    def __exit__(self, exception_type, *_):
        """End the run, if it started; what then fails costs neither the training nor the words of what stopped it."""
        if self.run is None:
            return
        try:
            self.finish(failed=exception_type is not None)
        except Exception as error:  # each package has its own
            warnings.warn(f"{self.package} did not end the run ({error}): it may lack the last points.", stacklevel=2)

    def write_settings(self, settings: Mapping[str, Any], model: keras.Model):
        """Start the run, or go on in it, with these settings."""
        self.board.write_settings(settings, model)
        options = {
            "project": os.environ.get(f"{self.package.upper()}_PROJECT", "keras_seq"),
            "group": self.folder.parent.name,
            "config": dict(settings),
            "resume": "allow",
        }
        try:
            self.run = self.start(run_id(self.folder), options)
        except Exception as error:  # each package has its own, such as for a user that has not logged in
            remedy = "do what it says, or train with --train.tracker tensorboard"
            raise ConnectionError(f"{self.package} does not start a run ({error}): {remedy}.") from error

    def record(self, tokens: int, logs: Mapping[str, float]):
        """Send a point of each curve."""
        self.board.record(tokens, logs)
        self.log(tokens, {scalar_tag(key): float(value) for key, value in logs.items()})

    def write(self, tokens: int, summaries: Summaries):
        """Send the scalars and texts of a validation."""
        self.board.write(tokens, summaries)
        scalars = {scalar_tag(validation_key(name)): float(value) for name, value in summaries.charted.items()}
        self.log(tokens, scalars | {name: self.text(text) for name, text in summaries.texts.items()})

    def start(self, run_id: str, options: dict):
        """Return the package's run, new or resumed."""
        return self.module.init(name=run_id, **options)

    def log(self, tokens: int, values: dict):
        """Send values at a position on the axis."""
        self.run.log(values, step=tokens)

    def text(self, text: str):
        """Return a text as the package shows it, with its spaces and line breaks."""
        return self.module.Markdown(code_block(text))

    def finish(self, failed: bool):
        """End the run when everything is sent."""
        self.run.finish()


class WandbRun(TrackioRun):
    """Record a run with wandb, which calls the axis `tokens` and keeps its files in the run's folder."""

    package = "wandb"

    def start(self, run_id: str, options: dict):
        """Return the package's run, new or resumed."""
        place = {"id": run_id, "name": self.folder.name, "dir": str(self.folder)}
        run = self.module.init(**place, **options, allow_val_change=True)  # of settings that differ on resume
        run.define_metric("tokens")
        run.define_metric("*", step_metric="tokens")  # wandb's own step may not go back, as a resumed run does
        return run

    def log(self, tokens: int, values: dict):
        """Send values at a position on the axis."""
        self.run.log({**values, "tokens": tokens})

    def text(self, text: str):
        """Return a text as the package shows it, with its spaces and line breaks."""
        return self.module.Html(f"<pre>{html.escape(text)}</pre>")

    def finish(self, failed: bool):
        """End the run when everything is sent; one that diverged or was interrupted counts as failed."""
        self.run.finish(exit_code=int(failed))


RUNS = {"trackio": TrackioRun, "wandb": WandbRun}


@contextlib.contextmanager
def open_tracker(name: str, folder: str | pathlib.Path, tokens: int = 0) -> Iterator[Tracker]:
    """Yield TensorBoard's tracker of a run that goes on at `tokens`, with trackio's or wandb's if it is named."""
    board = TokenTensorBoard(folder)
    board.resume_at(tokens)
    if name == "tensorboard":
        yield board
    else:
        with RUNS[name](folder, board) as run:
            yield run


def import_tracker(name: str) -> types.ModuleType:
    """Return the package of a tracker."""
    try:
        module = importlib.import_module(name)
        if module.__dict__.get("__file__", "") is None:
            raise ImportError(f"{name} is a folder here, not a package")  # wandb itself makes such folders
    except ImportError as error:
        raise ValueError(f"tracker={name!r}; expected an installed package ({error}): pip install {name}.") from None
    return module


def run_id(folder: pathlib.Path) -> str:
    """Return the id of the run in a folder, which is drawn and kept there at the first call."""
    path = folder / RUN_ID
    known = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
    if not re.fullmatch(r"[\w.-]+", known):
        known = f"{re.sub(r'[^a-zA-Z0-9_.-]', '-', folder.name)[:80]}-{uuid.uuid4().hex[:8]}"
        write_text(path, known + "\n")
    return known


# Bars on the terminal, by tqdm: of a training in tokens, and of a text that is scored.

_scored_name = contextvars.ContextVar("scored_name", default=None)  # what `track_progress` shows; None shows nothing


@contextlib.contextmanager
def scoring_bar(name: str) -> Iterator[None]:
    """Show the progress of each text that is scored inside a `with` block, under a name."""
    token = _scored_name.set(name)
    try:
        yield
    finally:
        _scored_name.reset(token)


def track_progress(starts: range, total: int) -> Iterable[int]:
    """Iterate over the starts of a text's parts; inside `scoring_bar` show how many of them are done."""
    name = _scored_name.get()
    if name is None or len(starts) < 2:
        return starts
    options = {"unit": "part", "leave": False, "dynamic_ncols": True, **_bar_options()}
    return tqdm(starts, f"{name}, {total:,} tokens", **options)


def _bar_options():
    """Return the options of a bar that is shown on a terminal, and in a notebook unless TQDM_DISABLE is set there."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return {} if hasattr(shell, "kernel") else {"disable": None}


class ProgressBar(keras.callbacks.Callback):
    """Show the progress and the loss of a training in tokens."""

    def __init__(self, name: str, tokens_per_step: int, start_step: int, last_step: int):
        super().__init__()
        self.tokens_per_step = tokens_per_step
        total, initial = (step * tokens_per_step for step in (last_step, start_step))
        options = {"unit": "tok", "unit_scale": True, "dynamic_ncols": True, **_bar_options()}
        self.bar = tqdm(desc=name, total=total, initial=initial, **options)

    def on_train_batch_end(self, batch, logs=None):
        """Update the bar."""
        self.bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)
        self.bar.update(int(self.model.optimizer.step) * self.tokens_per_step - self.bar.n)

    def on_train_end(self, logs=None):
        """Close the bar."""
        self.bar.close()

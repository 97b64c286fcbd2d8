"""How a program ends: a sentence and a status for each mistake, and the way to resume after a stop."""

import os
import pathlib
import signal
import sys
import types

import numpy as np
import pytest

from keras_seq.commands.exit_status import exit_with_message
from keras_seq.runs import folders
from keras_seq.training import TrainingDiverged, TrainingInterrupted


class Gone:
    """A standard output that nobody reads."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self):
        pass


@pytest.fixture
def run(tmp_path):
    """A folder of runs in which one was begun."""
    (tmp_path / "lstm-seed0").mkdir()
    (tmp_path / "lstm-seed0/config.json").touch()
    return types.SimpleNamespace(folder=tmp_path, line=f"-m script --resume {tmp_path}\n")


@exit_with_message("script")
def script(lines=(), folder=None, number=None):
    """Prints lines, and is asked to stop."""
    if folder is not None:
        folders.run_folders.append(folder)
    for line in lines:
        print(line)
    if number is not None:
        os.kill(os.getpid(), number)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_between_trainings_a_stop_prints_how_to_resume(run, number, capfd):
    with pytest.raises(SystemExit) as stop:
        script(folder=run.folder, number=number)
    assert stop.value.code == 128 + number
    assert capfd.readouterr().err.endswith(run.line)


class JaxRuntimeError(RuntimeError):
    """JAX's, by its name."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no room"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."),
    ],
)
def test_out_of_memory_is_a_sentence_on_every_backend(error, capsys):
    @exit_with_message("script")
    def fails():
        raise error

    with pytest.raises(SystemExit) as stop:
        fails()
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith("): choose smaller sizes.\n")


def test_without_runs_to_resume_an_unread_output_ends_the_script_silently(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdout", Gone())
    lines = iter("abc")
    with pytest.raises(SystemExit) as stop:
        script(lines)
    assert (stop.value.code, [*lines]) == (128 + signal.SIGPIPE, ["b", "c"])
    assert capfd.readouterr().err == ""


def test_where_there_are_runs_an_unread_output_waits_for_the_next_checkpoint(run, monkeypatch, capfd):
    monkeypatch.setattr(sys, "stdout", Gone())
    lines = iter("abc")
    with pytest.raises(SystemExit) as stop:
        script(lines, run.folder)
    assert (stop.value.code, [*lines]) == (128 + signal.SIGPIPE, [])
    assert capfd.readouterr().err.endswith(run.line)


def test_a_folder_without_a_run_is_not_named(tmp_path, capfd):
    with pytest.raises(SystemExit):
        script(folder=tmp_path, number=signal.SIGINT)
    assert capfd.readouterr().err == "\nStopped.\n"


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ValueError("tokens=0;\n   expected more."), 2, "script: tokens=0; expected more.\n"),
        (FileNotFoundError(2, "No such file", "x"), 2, "script: x: No such file.\n"),
        (TrainingDiverged("The loss is nan."), 1, "script: The loss is nan.\n"),
        (KeyboardInterrupt(), 130, "\nStopped.\n"),
        (KeyboardInterrupt(signal.SIGTERM), 143, "\nStopped.\n"),
        (
            TrainingInterrupted(pathlib.Path("logs/compare/now/lstm-seed0/checkpoints/step-00000005.safetensors")),
            130,
            "\nStopped. A checkpoint is in logs/compare/now/lstm-seed0/checkpoints/step-00000005.safetensors\n"
            f"To resume: {os.path.relpath(sys.executable)} -m script --resume logs/compare/now\n",
        ),
        (
            TrainingInterrupted(pathlib.Path("a/now/x/checkpoints/step-00000005.safetensors"), signal.SIGTERM),
            143,
            "\nStopped. A checkpoint is in a/now/x/checkpoints/step-00000005.safetensors\n"
            f"To resume: {os.path.relpath(sys.executable)} -m script --resume a/now\n",
        ),
        (BlockingIOError(11, "another process trains there", "x"), 2, "script: x: another process trains there.\n"),
    ],
)
def test_each_end_has_its_status_and_its_sentence(capsys, error, code, sentence):
    with pytest.raises(SystemExit) as stop, exit_with_message("script"):
        raise error
    assert stop.value.code == code
    assert capsys.readouterr().err == sentence


def test_a_run_at_any_depth_of_a_folder_resumes_with_that_folder(capsys):
    @exit_with_message("script")
    def script():
        folders.run_folders.append(pathlib.Path("a/now"))
        raise TrainingInterrupted(pathlib.Path("a/now/recall/x/checkpoints/step-00000005.safetensors"))

    with pytest.raises(SystemExit):
        script()
    assert capsys.readouterr().err.endswith(" -m script --resume a/now\n")


def test_a_mistake_of_ours_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), exit_with_message("script"):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="broadcast"), exit_with_message("script"):
        np.broadcast_to(np.zeros(2), (3, 3))

"""Stops from outside, as a user makes them: a process of its own, and what it leaves and says."""

import os
import signal
import subprocess
import sys
import types

import pytest

from experiments.frame import interruption
from experiments.frame.startup import exit_with_message
from tests.experiments.conftest import ROOT


def comparison(logs, **options):
    """A small comparison that has validated once, of two models and two validations each."""
    command = [sys.executable, "-m", "experiments.compare", "--smoke", "--log-dir", str(logs)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes, **options)
    for line in process.stdout:
        if "   validation: " in line:
            return process
    raise AssertionError(process.stderr.read())


def ignore_closed_terminal():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def weights(folder):
    return (folder / "checkpoints/step-00000020.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["a closed terminal", "nobody reads"])
def test_a_comparison_without_terminal_or_reader_stops_with_a_checkpoint_and_resumes(tmp_path, smoke, python, end):
    with comparison(tmp_path) as process:
        if end == "a closed terminal":
            process.send_signal(signal.SIGHUP)
        else:
            process.stdout.close()
        stderr = process.stderr.read()
    assert process.returncode == 128 + (signal.SIGHUP if end == "a closed terminal" else signal.SIGPIPE)
    assert "Traceback" not in stderr
    (folder,) = (tmp_path / "compare").iterdir()
    assert f"To resume: {os.path.relpath(sys.executable)} -m experiments.compare --resume {folder}\n" in stderr
    assert list((folder / "lstm-seed0/checkpoints").glob("step-*"))
    process = python("-m", "experiments.compare", "--resume", folder)
    assert (process.returncode, process.stderr) == (0, "")
    assert weights(folder / "lstm-seed0") == weights(smoke.folder / "lstm-seed0")


@pytest.mark.slow
def test_under_nohup_a_closed_terminal_changes_nothing(tmp_path):
    process = comparison(tmp_path, preexec_fn=ignore_closed_terminal)
    process.send_signal(signal.SIGHUP)
    stdout, stderr = process.communicate()
    assert (process.returncode, stderr) == (0, "")
    assert "transformer-seed0" in stdout


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
        interruption.run_folders.append(folder)
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

import dataclasses
import os
import pathlib
import signal
import sys
import tempfile

import pytest

from experiments.frame.startup import _filtered_stderr, command_line, exit_with_message, start_tensorflow
from keras_seq.training import TrainingDiverged, TrainingInterrupted

NOTES = b"""\
2026-01-01 00:00:00.000000: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] Could not find cuda drivers
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795250289.000000   14022 cpu_feature_guard.cc:227] This TensorFlow binary is optimized
To enable the following instructions: AVX512F, in other operations, rebuild TensorFlow

"""


def test_known_notes_are_dropped_and_everything_else_comes_through(capfd):
    with _filtered_stderr():
        os.write(2, NOTES + b"E0000 something is wrong\n")
        print("from Python", file=sys.__stderr__)
    os.write(2, b"I0000 later\n")
    assert capfd.readouterr().err == "E0000 something is wrong\nfrom Python\nI0000 later\n"


def test_after_an_error_stderr_is_back_and_held_lines_are_printed(capfd):
    def fail():
        with _filtered_stderr():
            os.write(2, b"E0000 the cause\n")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "E0000 the cause\nafter\n"


def test_without_a_folder_for_temporary_files_nothing_begins(capsys, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    with pytest.raises(SystemExit) as stop:
        start_tensorflow()
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("experiments: No usable temporary directory found in ['/nowhere']: set TMPDIR")
    assert message.endswith(".\n")


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


def test_a_mistake_of_ours_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), exit_with_message("script"):
        raise ZeroDivisionError


@dataclasses.dataclass
class Settings:
    """Settings."""

    width: int = 3

    def __post_init__(self):
        if self.width < 1:
            raise ValueError(f"width={self.width}; expected at least 1.")


def test_the_command_line_becomes_the_dataclass():
    assert command_line(Settings, "script", "A script.", ["--width", "5"]) == Settings(5)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--width", "x"], "--width"),
        (["--width", "0"], "width=0; expected at least 1"),
        (["--height", "1"], "--height"),
    ],
)
def test_what_tyro_says_of_a_mistake_is_one_sentence_without_a_frame(capsys, arguments, names):
    with pytest.raises(ValueError, match=names) as mistake:
        command_line(Settings, "script", "A script.", arguments)
    assert str(mistake.value).endswith(" (--help lists the options).")
    assert not set("│─╭╰\n") & set(str(mistake.value))
    assert capsys.readouterr().err == ""

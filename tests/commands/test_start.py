"""Scripts started without some of their streams, or with streams of few characters."""

import importlib.machinery
import io
import os
import pathlib
import subprocess
import sys

import keras
import pytest

from keras_seq.commands.start import QuietTensorFlow, check_backend, filtered_stderr, start
from keras_seq.runs.finished_run import read_standard_input

ROOT = pathlib.Path(__file__).parents[2]
NOTES = b"""\
2026-01-01 00:00:00.000000: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] Could not find cuda drivers
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795250289.000000   14022 cpu_feature_guard.cc:227] This TensorFlow binary is optimized
To enable the following instructions: AVX512F, in other operations, rebuild TensorFlow

"""


def test_a_closed_standard_input_is_empty(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setattr("sys.meta_path", [*sys.meta_path])
    start()
    assert read_standard_input() == ""
    sys.stdin.close()


def test_known_notes_are_dropped_and_everything_else_comes_through(capfd):
    with filtered_stderr():
        os.write(2, NOTES + b"E0000 something is wrong\n")
        print("from Python", file=sys.__stderr__)
    os.write(2, b"I0000 later\n")
    assert capfd.readouterr().err == "E0000 something is wrong\nfrom Python\nI0000 later\n"


def test_after_an_error_stderr_is_back_and_held_lines_are_printed(capfd):
    def fail():
        with filtered_stderr():
            os.write(2, b"E0000 the cause\n")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "E0000 the cause\nafter\n"


def test_tensorflow_is_found_with_the_quiet_loader_and_other_modules_are_left_to_others():
    spec, usual = QuietTensorFlow.find_spec("tensorflow"), importlib.machinery.PathFinder.find_spec("tensorflow")
    assert isinstance(spec.loader, QuietTensorFlow)
    assert spec.origin == usual.origin
    assert QuietTensorFlow.find_spec("json") is None


def test_experiments_import_tensorflow_only_where_it_is_needed(tmp_path):
    """That it is imported silently is in test_compare.py: a mistake prints nothing but its sentence."""
    code = "import os, sys, experiments; print('tensorflow' in sys.modules, os.environ['KERAS_BACKEND'])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_BACKEND"))}
    environment["KERAS_HOME"] = str(tmp_path)  # not the user's, which may name a backend
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False tensorflow\n", "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Torch", "expected tensorflow, jax or torch."),
        ("jax", f'jax is not installed in {sys.executable}; pip install "keras_seq[jax]" there, or set KERAS_BACKEND'),
    ],
)
def test_a_wrong_backend_ends_a_process_before_keras_is_imported(monkeypatch, capsys, name, expected):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SystemExit) as stop:
        check_backend(name)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith(f"KERAS_BACKEND={name}: {expected}")
    check_backend("")
    check_backend(keras.backend.backend())


def test_the_folder_above_a_clone_imports_the_package_and_not_the_clone(tmp_path):
    """`make` installs into .venv; another installation may be of another kind."""
    if pathlib.Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("runs in the .venv of the clone")
    (tmp_path / "keras_seq").mkdir()  # as a clone is named
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import importlib.util; print(importlib.util.find_spec('keras_seq').origin)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == f"{ROOT / 'keras_seq' / '__init__.py'}\n", "install it again: pip install -e ."


def test_every_command_line_checks_the_backend():
    environment = {**os.environ, "KERAS_BACKEND": "Torch"}
    command = [sys.executable, "-m", "keras_seq", "generate", "--help"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "KERAS_BACKEND=Torch: expected tensorflow, jax or torch.\n"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_standard_input_is_read_whole_and_has_to_be_utf_8(monkeypatch, errors):
    for text in ("", "a\u732b\n\nb"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8", errors))
        assert read_standard_input() == text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff"), "utf-8", errors))
    with pytest.raises(ValueError, match=r"^Standard input is not UTF-8 from offset 2 on: "):
        read_standard_input()

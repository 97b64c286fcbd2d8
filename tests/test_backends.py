"""Where a backend, or a package of the commands, is not installed: what still works, and what is said."""

import json

import pytest

from keras_seq import backends
from keras_seq.backends import BACKENDS, chosen_backend, installed_backends
from keras_seq.commands import NEEDED
from tests.processes import run_without

LIBRARY = """
import keras_seq
from keras_seq import callbacks, data, evaluation, generation, interpretability, layers, models, saving, training
layers.LSTM(3), models.LSTMConfig(), training.TrainConfig(), data.Corpus, evaluation.score_text, generation.generate
try:
    keras_seq.train
except ImportError as error:
    print(error)
"""


def without_tensorflow(tmp_path, others, *arguments):
    """Run `python ...` without TensorFlow and other backends, where nothing says which backend to take."""
    return run_without(["tensorflow", *others], tmp_path, *arguments, KERAS_BACKEND=None, KERAS_HOME=str(tmp_path))


@pytest.mark.parametrize("installed", ["jax", "torch", None])
def test_the_missing_backend_is_named_with_one_that_is_there(tmp_path, installed):
    others = {"jax", "torch"} - {installed}
    for name in filter(None, [installed]):
        (tmp_path / f"{name}.py").touch()
    done = without_tensorflow(tmp_path, others, "-c", "import keras_seq")
    *_, said = done.stderr.splitlines()
    remedy = f"set KERAS_BACKEND={installed}, which is." if installed else 'pip install "keras_seq[tensorflow]".'
    assert done.returncode == 1
    assert said.startswith("ImportError: Keras's backend tensorflow is not installed in ")
    assert said.endswith(remedy)


@pytest.mark.parametrize("installed", ["jax", pytest.param("torch", marks=pytest.mark.rare)])
def test_the_command_takes_a_backend_that_is_there(tmp_path, installed):
    pytest.importorskip(installed, exc_type=ImportError)
    done = without_tensorflow(tmp_path, {"jax", "torch"} - {installed}, "-m", "keras_seq", "generate", "no-run")
    assert done.stderr.startswith("keras-seq generate: no-run does not exist; expected the folder of a finished run")
    assert (done.returncode, done.stdout) == (2, "")


def test_without_the_packages_of_the_commands_the_library_works_and_says_what_training_needs(tmp_path):
    done = run_without(NEEDED, tmp_path, "-c", LIBRARY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("keras_seq.train needs ")
    assert done.stdout.endswith(': pip install "keras_seq[command]".\n')


def test_the_backend_is_that_of_the_variable_of_keras_json_or_tensorflow(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    for content, name in (("[]", "tensorflow"), ("{", "tensorflow"), (json.dumps({"backend": "jax"}), "jax")):
        (tmp_path / "keras.json").write_text(content)
        assert chosen_backend() == name
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert chosen_backend() == "torch"


def test_tensorflow_comes_first(monkeypatch):
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: object())
    assert installed_backends() == [*BACKENDS]

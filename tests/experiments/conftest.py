"""Two tiny comparisons, each in a process of its own, for all tests of what they leave and say."""

import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

from keras_seq.models import LANGUAGE_MODELS

ROOT = pathlib.Path(__file__).parents[2]


LONG = {  # experiments whose smoke runs take a quarter to half a minute each
    *("test_optimizers", "test_gradient_descent", "test_dates"),
    *("test_masked_lm", "test_respace", "test_words", "test_reverse"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks what looks into the long smoke runs as slow: `make smoke` has the runs themselves."""
    for item in items:
        if item.path.stem in LONG and {"run", "smoke"} & {*item.fixturenames}:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def python():
    """Runs `python ...` in the repository as a user does, without the settings of this test process."""

    def python(*arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_") and k != "PYTHONWARNINGS"}
        return subprocess.run(
            [sys.executable, *map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True
        )

    return python


@pytest.fixture(scope="session")
def smoking(python, tmp_path_factory):
    """Runs `compare --smoke` with further options: what it said, its folder, and its rows."""

    def smoking(*options):
        logs = tmp_path_factory.mktemp("logs")
        done = python("-m", "experiments.compare", "--smoke", "--log-dir", logs, *options)
        assert done.returncode == 0, done.stderr
        (folder,) = (logs / "compare").iterdir()
        rows = json.loads((folder / "compare.json").read_text(encoding="utf-8"))["rows"]
        return types.SimpleNamespace(folder=folder, rows=rows, stdout=done.stdout, stderr=done.stderr)

    return smoking


@pytest.fixture(scope="session")
def smoke(smoking):
    """The models of the defaults."""
    return smoking()


@pytest.fixture(scope="session")
def zoo(smoking):
    """Every model that predicts the next character."""
    return smoking("--models", *LANGUAGE_MODELS)


@pytest.fixture
def fails(capsys):
    """Asserts that a script's main ends with status 2 and one sentence on stderr; returns the sentence."""

    def fails(main, *arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        assert stop.value.code == 2
        assert output.err.endswith(".\n")
        assert output.err.count("\n") == 1
        assert "Traceback" not in output.err
        return output.err

    return fails

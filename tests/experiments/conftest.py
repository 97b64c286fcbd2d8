"""Two small comparisons, each in its own process, for the tests of their files and messages."""

import html
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types

import pytest

from keras_seq.models import LANGUAGE_MODELS

ROOT = pathlib.Path(__file__).parents[2]


LONG = {  # experiments whose smoke runs take a quarter to half a minute each
    *("test_optimizers", "test_gradient_descent", "test_date_translation"),
    *("test_masked_lm", "test_space_restoration", "test_word_lm", "test_sequence_reversal"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests of long smoke runs as slow; `make smoke` executes the runs."""
    for item in items:
        if item.path.stem in LONG and {"run", "smoke"} & {*item.fixturenames}:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def python():
    """Run `python ...` in the repository as a user does, without the environment of this test process."""

    def python(*arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_") and k != "PYTHONWARNINGS"}
        return subprocess.run(
            [sys.executable, *map(str, arguments)], cwd=ROOT, env=environment, capture_output=True, text=True
        )

    return python


@pytest.fixture(scope="session")
def smoking(python, tmp_path_factory):
    """Run `compare --smoke` with more options; return its output, its folder and its rows."""

    def smoking(*options):
        logs = tmp_path_factory.mktemp("logs")
        process = python("-m", "experiments.compare", "--smoke", "--log-dir", logs, *options)
        assert process.returncode == 0, process.stderr
        (folder,) = (logs / "compare").iterdir()
        rows = json.loads((folder / "compare.json").read_text(encoding="utf-8"))["rows"]
        return types.SimpleNamespace(folder=folder, rows=rows, stdout=process.stdout, stderr=process.stderr)

    return smoking


@pytest.fixture(scope="session")
def smoke(smoking):
    """Compare the default models."""
    return smoking()


@pytest.fixture(scope="session")
def zoo(smoking):
    """Compare all language models."""
    return smoking("--models", *LANGUAGE_MODELS)


@pytest.fixture
def browse(tmp_path):
    """Return what a script at the end of a page writes, as JSON, into its title."""

    def browse(page, script, width=500):
        path = tmp_path / "browsed.html"
        path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom"]
        done = subprocess.run(["chromium", *options, path.as_uri()], capture_output=True, text=True, check=True)
        return json.loads(html.unescape(done.stdout.split("<title>")[1].split("</title>")[0]))

    if shutil.which("chromium") is None:
        pytest.skip("Chromium is not installed")
    return browse


@pytest.fixture
def fails(capsys):
    """Assert that a script's main exits with status 2 and one sentence on stderr; return the sentence."""

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

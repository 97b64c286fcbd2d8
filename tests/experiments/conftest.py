"""Smoke runs of the experiments, shared by all tests, and how their scripts fail."""

import contextlib
import functools
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import types

import filelock
import matplotlib.pyplot as plt
import pytest

from keras_seq.reports import plots
from tests.experiments.discovery import ROOT, experiments, main_of

# models that differ in kind; test_without_tensorflow.py, which is rare, has all of them in one comparison
COMPARED = "lstm", "mamba", "xlstm", "rwkv7", "hybrid", "transformer", "llama"
SMOKE_OPTIONS = {"compare": ("--models", *COMPARED), "shakespeare": ("--corpus", "pydoc")}


def pytest_itemcollected(item):
    """Mark a test that needs a smoke run, with the experiment for its group, and one of a page in a browser."""
    if "smoke_run" in item.fixturenames:
        item.add_marker(pytest.mark.smoke)
        item.add_marker(pytest.mark.xdist_group(_experiment_of(item)))
    if "browse" in item.fixturenames:
        item.add_marker(pytest.mark.rare)


def _experiment_of(item):
    """Return whose smoke run a test needs: its parameter `name`, its file, or compare for a tool."""
    name = item.path.stem.removeprefix("test_")
    if "every" in name:
        name = item.callspec.params["name"]
    return name if name in experiments() else "compare"


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
def smoke_run(tmp_path_factory):
    """Run `experiments.NAME --smoke`, once for all test processes; return its folder, rows, report and output."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    @functools.cache
    def smoke_run(name, *options):
        logs = base / "-".join(["smoke", name, *(option.strip("-") for option in options)])
        with filelock.FileLock(f"{logs}.lock"):
            if not (logs / "output.json").exists():
                streams = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
                    main_of(name)(["--smoke", "--log-dir", str(logs), *(options or SMOKE_OPTIONS.get(name, ()))])
                (logs / "output.json").write_text(json.dumps([stream.getvalue() for stream in streams]))
        (folder,) = (logs / name).iterdir()
        text = (folder / f"{name}.md").read_text(encoding="utf-8")
        rows = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        rows = rows["rows"] if name == "compare" else rows
        stdout, stderr = json.loads((logs / "output.json").read_text())
        return types.SimpleNamespace(folder=folder, rows=rows, report=text, stdout=stdout, stderr=stderr)

    return smoke_run


@pytest.fixture
def smoke(request, smoke_run):
    """The smoke run of the experiment that a test is of."""
    return smoke_run(_experiment_of(request.node))


@pytest.fixture
def copied(tmp_path):
    """Copy a folder of a smoke run, leaving out the locks that other test processes may hold on it just now."""
    passing = shutil.ignore_patterns(".lock", ".pid", "*.partial*")
    return lambda folder, name: shutil.copytree(folder, tmp_path / name, ignore=passing)


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
def drawn(monkeypatch):
    """Return the axes of the figure that a function of an experiment draws, which is not written."""

    def drawn(plot, *arguments):
        with monkeypatch.context() as patched:
            patched.setattr(plots, "save", lambda figure, path: None)
            plot(*arguments)
        axes = plt.gcf().axes
        plt.close("all")
        return axes

    return drawn


@pytest.fixture
def fails(capsys, monkeypatch):
    """Assert that a script's main exits with status 2 and a message on stderr; return it, without tyro's frame."""
    monkeypatch.setenv("COLUMNS", "2000")

    def fails(main, *arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        message = capsys.readouterr().err
        assert stop.value.code == 2
        assert "Traceback" not in message
        assert message.count("\n") == 1 or "For full helptext" in message
        return " ".join(re.sub("[╭╮╰╯─│]|-{4,}", " ", message).split())

    return fails


@pytest.fixture
def refuses(fails, tmp_path):
    """Assert that a mistake on the command line is named, by default by its words, and that nothing is left behind."""

    def refuses(name, arguments, *named):
        named = named or (arguments,)
        sentence = fails(main_of(name), "--log-dir", tmp_path / "logs", *arguments.split())
        assert all(word in sentence for word in named), sentence
        assert not (tmp_path / "logs").exists()

    return refuses

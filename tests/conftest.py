"""What all tests share. Those outside tests/layers need Keras's TensorFlow backend, unless marked `any_backend`."""

import contextlib
import functools
import gc
import html
import importlib
import io
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import types

# before TensorFlow is imported: its notes are nobody's output, and XLA compiles for longer than its programs run
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# PyTorch's CUDA build brings triton. Imported after TensorFlow, it aborts Python: both register the options of LLVM
# (TensorFlow 2.21, triton 3.9). Torch imports it on demand, so that `import torch` before TensorFlow is not enough.
with contextlib.suppress(ImportError):
    importlib.import_module("triton")

import hypothesis
import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parent
ANY_BACKEND = TESTS / "layers"
RARE_CASES = {*(TESTS / "rare_cases.txt").read_text(encoding="utf-8").splitlines()[2:]}
BUDGETS = {"processor": 10 * 60, "wall": 5 * 60}  # seconds, of `make test` on 2 cores with nothing beside it
STARTED = time.monotonic()
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tests")
# From 3.16 on an RNN of Keras hands no mask on, and warns of it. For tests of what the RNN itself computes.
ignores_dropped_masks = pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning")


def pytest_terminal_summary(terminalreporter, config):
    """Say what the whole suite took, and its budgets. The worker processes have ended by now."""
    selected = config.option.keyword or config.option.markexpr not in config.getini("addopts")
    if selected or config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.collectonly:
        return
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    processes = getattr(config.option, "numprocesses", None) or 1
    terminalreporter.write_line(
        f"processor time {_minutes(processor)} of {_minutes(BUDGETS['processor'])}, "
        f"{_minutes(time.monotonic() - STARTED)} of {_minutes(BUDGETS['wall'])} on {processes} processes"
    )


def _minutes(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min" + (f" {seconds} s" if seconds else "")


def pytest_itemcollected(item):
    """Mark the cases of rare_cases.txt, tests that need a smoke run, by its experiment, and pages in a browser."""
    fixtures = getattr(item, "fixturenames", ())  # the code of a page has none
    if item.nodeid.removeprefix("tests/") in RARE_CASES or "browse" in fixtures:
        item.add_marker(pytest.mark.rare)
    if "smoke_run" in fixtures:
        item.add_marker(pytest.mark.smoke)
        item.add_marker(pytest.mark.xdist_group(_experiment_of(item)))


def _experiment_of(item):
    """Return whose smoke run a test needs: its parameter `name`, its file, or compare for a tool."""
    from tests.experiments.discovery import experiments

    name = item.path.stem.removeprefix("test_")
    if "every" in name:
        name = item.callspec.params["name"]
    return name if name in experiments() else "compare"


def pytest_collection_modifyitems(items):
    """Skips what cannot run on the Keras backend at hand."""
    import keras  # here, as the process that hands out the tests needs none

    backend = keras.backend.backend()
    if backend == "tensorflow":
        return
    for item in items:
        if ANY_BACKEND not in item.path.parents and not item.get_closest_marker("any_backend"):
            item.add_marker(pytest.mark.skip(reason=f"needs Keras's TensorFlow backend; this is {backend}"))


def pytest_collection_finish():
    """Collect garbage seldom."""
    gc.set_threshold(100_000)


@pytest.fixture(scope="module", autouse=True)
def _what_is_old_is_no_garbage():
    """Leave out what was there before the tests of a file when garbage is collected, as Keras does for each run."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_seed_of_tensorflow():
    """Set TensorFlow's own seed once: to set it drops all prepared kernels, which makes the next call of a layer slow.

    Only the shuffling of Keras's `fit` draws by it, in a graph, where each draw is the same whatever ran before.
    """
    import keras

    keras.utils.set_random_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        if keras.backend.backend() == "tensorflow":  # elsewhere it may not be installed
            patch.setattr("tensorflow.random.set_seed", lambda seed: None)
        yield


@pytest.fixture(autouse=True)
def _seeded(_one_seed_of_tensorflow):
    import keras

    keras.utils.set_random_seed(0)


def often(names, cases, quick):
    """Parametrize over cases, a list or a dict by their ids; all but the quick ones are `rare`."""
    ids, values = (list(cases), cases.values()) if isinstance(cases, dict) else (None, cases)
    marks = [() if case in quick else pytest.mark.rare for case in cases]
    values = [[value] if isinstance(names, str) else value for value in values]
    params = [pytest.param(*value, marks=mark) for value, mark in zip(values, marks, strict=True)]
    return pytest.mark.parametrize(names, params, ids=ids)


@contextlib.contextmanager
def functions_run_eagerly():
    """Neither trace nor compile on TensorFlow: for tests of many shapes, or of few steps, whose point it is not."""
    import keras

    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@pytest.fixture
def eagerly():
    with functions_run_eagerly():
        yield


def randomized(model, seed=0, scale=0.4):
    """Give every weight distinct random values: swapping two fails a test, and no block is the identity."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        if "seed" not in weight.path:
            weight.assign(random.normal(scale=scale, size=weight.shape))
    return model


@pytest.fixture(scope="session")
def randomize():
    return randomized


@pytest.fixture
def terminal():
    """Signals as in a terminal: a process under nohup, as the tests may be, would take no SIGHUP for a request."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


# What the tests of experiments, commands, runs and reports share


@pytest.fixture(scope="session")
def python():
    """Run `python ...` in the repository as a user does, without the environment of this test process."""

    def python(*arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_") and k != "PYTHONWARNINGS"}
        return subprocess.run(
            [sys.executable, *map(str, arguments)], cwd=TESTS.parent, env=environment, capture_output=True, text=True
        )

    return python


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory):
    """Run `experiments.NAME --smoke`, once for all test processes; return its folder, rows, report and output."""
    import filelock

    from tests.experiments.discovery import SMOKE_OPTIONS, main_of

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

"""What all tests share. Those outside tests/layers need Keras's TensorFlow backend, unless marked `any_backend`."""

import contextlib
import gc
import importlib
import os
import pathlib
import resource
import signal
import time

# before TensorFlow is imported: its notes are nobody's output, and XLA compiles for longer than its programs run
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# PyTorch's CUDA build brings triton. Imported after TensorFlow, it aborts Python: both register the options of LLVM
# (TensorFlow 2.21, triton 3.9). Torch imports it on demand, so that `import torch` before TensorFlow is not enough.
with contextlib.suppress(ImportError):
    importlib.import_module("triton")

import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parent
ANY_BACKEND = TESTS / "layers"
RARE_CASES = {*(TESTS / "rare_cases.txt").read_text(encoding="utf-8").splitlines()[2:]}
BUDGETS = {"processor": 10 * 60, "wall": 5 * 60}  # seconds, of `make test` on 2 cores with nothing beside it
STARTED = time.monotonic()
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
    """Mark the cases of rare_cases.txt."""
    if item.nodeid.removeprefix("tests/") in RARE_CASES:
        item.add_marker(pytest.mark.rare)


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
    """Collect garbage seldom, and leave out what was imported: it lives as long as the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


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

    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.fixture
def eagerly():
    with functions_run_eagerly():
        yield


@pytest.fixture(scope="session")
def randomize():
    """Gives every weight distinct random values, so that swapping two of them fails a test."""

    def randomize(model, seed=0, scale=0.4):
        random = np.random.default_rng(seed)
        for weight in model.weights:
            if "seed" not in weight.path:
                weight.assign(random.normal(scale=scale, size=weight.shape))
        return model

    return randomize


@pytest.fixture
def terminal():
    """Signals as in a terminal: a process under nohup, as the tests may be, would take no SIGHUP for a request."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)

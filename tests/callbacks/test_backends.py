"""Diagnostics see the same model on every backend, in the middle of an epoch too."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_seq.callbacks import Profiler
from tests.callbacks import diagnostics_fit

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.rare
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_backend_writes_what_tensorflow_writes(backend, events, tmp_path):
    pytest.importorskip(backend)
    diagnostics_fit.fit(tmp_path / "tensorflow")
    command = [sys.executable, "-m", "tests.callbacks.diagnostics_fit", str(tmp_path / backend)]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    expected, written = events(tmp_path / "tensorflow"), events(tmp_path / backend)
    assert {tag: (plugin, [*points]) for tag, (plugin, points) in written.items()} == {
        tag: (plugin, [*points]) for tag, (plugin, points) in expected.items()
    }
    gates = {tag: points for tag, (_, points) in expected.items() if tag.startswith("diagnostics/gates/")}
    assert {tag.split("/")[2] for tag in gates} == {"gru", "keras_lstm"}
    assert [*gates["diagnostics/gates/gru/update"]] == [2, 4, 6, 8, 10]
    for tag, (plugin, points) in expected.items():
        for step, value in points.items():
            if plugin == "scalars":
                assert written[tag][1][step] == pytest.approx(value, rel=1e-3, abs=1e-5), (tag, step)
            elif plugin == "histograms":
                edges = [buckets[:, :2] for buckets in (written[tag][1][step], value)]
                np.testing.assert_allclose(*edges, rtol=1e-3, atol=1e-5, err_msg=tag)
    vectors = [np.loadtxt(tmp_path / name / "embedding.tsv") for name in (backend, "tensorflow")]
    np.testing.assert_allclose(*vectors, rtol=1e-3, atol=1e-5)


def test_the_profiler_refuses_another_backend(monkeypatch, tmp_path):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"the backend is 'jax'; expected 'tensorflow', or use jax\.profiler"):
        Profiler(tmp_path)

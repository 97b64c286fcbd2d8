"""Diagnostics see the same model on every backend, in the middle of an epoch too, without TensorFlow on the others."""

import keras
import numpy as np
import pytest

from keras_seq.callbacks import Profiler
from tests.callbacks import diagnostics_fit
from tests.experiments.test_benchmark import without_tensorflow


@pytest.mark.rare
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_backend_writes_what_tensorflow_writes(backend, events, tmp_path):
    pytest.importorskip(backend)
    diagnostics_fit.fit(tmp_path / "tensorflow")
    done = without_tensorflow(tmp_path, backend, "-m", "tests.callbacks.diagnostics_fit", tmp_path / backend)
    assert done.returncode == 0, done.stderr
    expected, written = events(tmp_path / "tensorflow"), events(tmp_path / backend)
    assert {tag: (plugin, [*points]) for tag, (plugin, points) in written.items()} == {
        tag: (plugin, [*points]) for tag, (plugin, points) in expected.items()
    }
    assert {plugin for plugin, _ in written.values()} == {
        *("scalars", "histograms", "images", "text", "hparams", "custom_scalars"),
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

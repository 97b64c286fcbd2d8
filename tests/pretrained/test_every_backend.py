"""A folder has the same logits on every backend, where TensorFlow cannot be imported, and goes out unchanged."""

import numpy as np
import pytest

from keras_seq import pretrained
from tests.pretrained.backend_logits import logits, models
from tests.processes import without_tensorflow


@pytest.fixture(scope="module")
def expected(tmp_path_factory, randomize):
    """A folder with a folder for each model, and the logits of TensorFlow."""
    folder, found = tmp_path_factory.mktemp("tensorflow"), {}
    for name, model in models().items():
        pretrained.save(randomize(model), folder / name)
        found[name] = logits(model)
    return folder, found


@pytest.mark.rare
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_logits_and_files_are_those_of_tensorflow(tmp_path, expected, backend):
    pytest.importorskip(backend)
    folder, found = expected
    process = without_tensorflow(tmp_path, backend, "-m", "tests.pretrained.backend_logits", folder, tmp_path)
    assert process.returncode == 0, process.stderr[-3000:]
    with np.load(tmp_path / "logits.npz") as arrays:
        for name in found:
            np.testing.assert_allclose(arrays[name], found[name], atol=2e-5 * np.abs(found[name]).max(), err_msg=name)
            files = [path / name / "model.safetensors" for path in (folder, tmp_path)]
            assert files[0].read_bytes() == files[1].read_bytes(), name

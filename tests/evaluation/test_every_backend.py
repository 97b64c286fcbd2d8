"""The same weights give the same losses and texts on every backend, where TensorFlow cannot be imported."""

import functools
import json

import numpy as np
import pytest

from tests.evaluation.backend_results import results
from tests.processes import without_tensorflow

expected = functools.cache(results)


@pytest.mark.rare
@pytest.mark.filterwarnings("ignore:.*the slow way")
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_losses_and_texts_are_those_of_tensorflow(tmp_path, backend):
    pytest.importorskip(backend)
    process = without_tensorflow(tmp_path, backend, "-m", "tests.evaluation.backend_results")
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout.splitlines()[-1])
    assert found.keys() == expected().keys()
    for name, values in expected().items():
        np.testing.assert_allclose(found[name]["losses"], values["losses"], rtol=1e-5, atol=1e-5)
        assert found[name]["texts"] == values["texts"], name

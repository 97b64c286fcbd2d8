"""A run on one backend is a run on another, without TensorFlow: equal losses, checkpoints that each goes on from."""

import json

import numpy as np
import pytest

from tests.processes import without_tensorflow
from tests.training.backend_run import MANY_STEPS, MODELS, STAGES, check_kill, train

pytestmark = pytest.mark.rare


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder in which TensorFlow began runs that JAX and then torch went on with."""
    folder = tmp_path_factory.mktemp("runs")
    for name in MODELS:
        train(folder / f"chain-{name}", name, stop=3)
    for backend in STAGES:
        pytest.importorskip(backend)
        process = without_tensorflow(folder, backend, "-m", "tests.training.backend_run", folder)
        assert process.returncode == 0, process.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_fifty_losses_are_those_of_tensorflow(runs, name, tmp_path):
    expected, _ = train(tmp_path, name, stop=MANY_STEPS, total=MANY_STEPS)
    assert len(expected) == MANY_STEPS == 50
    assert len({round(loss, 3) for loss in expected}) > 30
    for backend in STAGES:
        got = json.loads((runs / f"{backend}.json").read_text())[name]
        np.testing.assert_allclose(got, expected, atol=1e-4, err_msg=backend)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_goes_from_tensorflow_to_jax_to_torch_and_back(runs, name, tmp_path):
    expected, weights = train(tmp_path, name)
    with pytest.warns(UserWarning, match="other versions"), pytest.warns(UserWarning, match="another backend"):
        got, end = train(runs / f"chain-{name}", name)
    np.testing.assert_allclose(got, expected, atol=1e-3)
    for a, b in zip(end, weights, strict=True):
        np.testing.assert_allclose(a, b, atol=0.02)


def test_a_kill_changes_no_bit_with_options(tmp_path):
    check_kill(tmp_path, "transformer", use_ema=True, gradient_accumulation_steps=3)

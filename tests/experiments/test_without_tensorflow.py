"""The main job on JAX and torch in a process that cannot import TensorFlow: train, resume, generate, score, export."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from keras_seq.commands import generate
from keras_seq.models import LANGUAGE_MODELS
from tests.processes import ROOT, without_tensorflow

pytestmark = pytest.mark.rare
MODELS = ["lstm", "transformer", "mamba"]
SCRIPT = """
import pathlib, sys

import pytest

sys.modules["tensorflow"] = None  # an import of it is an ImportError
from experiments.compare import __main__ as compare
from keras_seq.commands import export, generate, score

log_dir, *models = sys.argv[1:]
compare.main(["--smoke", "--log-dir", log_dir, "--models", *models])
(folder,) = pathlib.Path(log_dir).glob("compare/*")
compare.main(["--resume", str(folder)])
for name in models:
    print(f"<{name}>")
    generate.main([f"{folder}/{name}-seed0", "--prompt", "def", "--max-new-tokens", "20", "--temperature", "0.8"])
    generate.main([f"{folder}/{name}-seed0", "--prompt", "def", "--max-new-tokens", "4", "--method", "beam"])
    score.main([f"{folder}/{name}-seed0", "--text", "return x"])
    print(f"</{name}>")
for kind in ("saved_model", "keras", "onnx"):
    with pytest.raises(SystemExit, match="2"):
        export.main([f"{folder}/lstm-seed0", "--to", kind])
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_main_job_needs_no_tensorflow_and_its_runs_are_tensorflows_too(backend, tmp_path, capsys):
    pytest.importorskip(backend, exc_type=ImportError)
    environment = {"KERAS_BACKEND": backend, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *MODELS]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count(f"needs the TensorFlow backend, not {backend}: set KERAS_BACKEND=tensorflow.\n") == 3
    (folder,) = tmp_path.glob("compare/*")
    assert (folder / "compare.html").exists()
    for name in MODELS:
        (said,) = re.findall(f"<{name}>\n(.*?)</{name}>", done.stdout, re.DOTALL)
        assert re.search(r"\d\.\d{4} nats per character", said)
        run = f"{folder}/{name}-seed0"
        generate.main([run, "--prompt", "def", "--max-new-tokens", "20", "--temperature", "0.8"])
        assert said.startswith(capsys.readouterr().out)


@pytest.fixture(scope="module")
def tensorflow_losses(tmp_path_factory):
    """The folder with TensorFlow's losses of all models, and the weights it began with."""
    if not any(importlib.util.find_spec(backend) for backend in ("jax", "torch")):
        pytest.skip("neither JAX nor torch is installed")
    folder = tmp_path_factory.mktemp("losses")
    command = [sys.executable, "-m", "tests.experiments.compare_losses", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"KERAS_BACKEND": "tensorflow"}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return folder


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_all_models_have_the_losses_of_tensorflow(backend, tensorflow_losses, tmp_path):
    pytest.importorskip(backend, exc_type=ImportError)
    done = without_tensorflow(tmp_path, backend, "-m", "tests.experiments.compare_losses", tensorflow_losses)
    assert done.returncode == 0, done.stderr[-3000:]
    expected, got = (json.loads((tensorflow_losses / f"{name}.json").read_text()) for name in ("tensorflow", backend))
    assert expected.keys() == got.keys() == {*LANGUAGE_MODELS}
    for name, curves in expected.items():
        assert len(curves["loss"]) == 4
        assert curves["loss"][-1] < curves["loss"][0] - 0.05
        for curve, losses in curves.items():
            np.testing.assert_allclose(got[name][curve], losses, atol=1e-4, err_msg=f"{name} {curve}")

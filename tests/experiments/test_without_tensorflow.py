"""The main job on JAX and torch in a process that cannot import TensorFlow: train, resume, generate, score."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from experiments.generate import __main__ as generate

pytestmark = pytest.mark.rare

MODELS = ["lstm", "transformer", "mamba"]
SCRIPT = """
import pathlib, sys

sys.modules["tensorflow"] = None  # an import of it is an ImportError
from experiments.compare import __main__ as compare
from experiments.generate import __main__ as generate
from experiments.score_text import __main__ as score_text

log_dir, *models = sys.argv[1:]
compare.main(["--smoke", "--log-dir", log_dir, "--models", *models])
(folder,) = pathlib.Path(log_dir).glob("compare/*")
compare.main(["--resume", str(folder)])
for name in models:
    print(f"<{name}>")
    generate.main([f"{folder}/{name}-seed0", "--prompt", "def", "--max-new-tokens", "20", "--temperature", "0.8"])
    generate.main([f"{folder}/{name}-seed0", "--prompt", "def", "--max-new-tokens", "4", "--method", "beam"])
    score_text.main([f"{folder}/{name}-seed0", "--text", "return x"])
    print(f"</{name}>")
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_main_job_needs_no_tensorflow_and_its_runs_are_tensorflows_too(backend, tmp_path, capsys):
    pytest.importorskip(backend, exc_type=ImportError)
    environment = {"KERAS_BACKEND": backend, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *MODELS]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = tmp_path.glob("compare/*")
    assert (folder / "compare.html").exists()
    for name in MODELS:
        (said,) = re.findall(f"<{name}>\n(.*?)</{name}>", done.stdout, re.DOTALL)
        assert re.search(r"\d\.\d{4} nats per character", said)
        run = f"{folder}/{name}-seed0"
        generate.main([run, "--prompt", "def", "--max-new-tokens", "20", "--temperature", "0.8"])
        assert said.startswith(capsys.readouterr().out)

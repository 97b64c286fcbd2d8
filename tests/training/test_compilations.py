"""Nothing is compiled after the first steps: a program that XLA compiles anew in each of them takes seconds a step."""

import os
import pathlib
import subprocess
import sys

import keras
import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import os, sys
import numpy as np
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.training import TrainConfig
from keras_seq.training.compilation import compile_model

size = {"context_length": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 16}
for config in (LSTMConfig(64, units=408), TransformerConfig(8, **size)):  # large enough for the kernels in XLA
    model = config.build_model(20)
    compile_model(model, TrainConfig(optimizer="muon"), 100)
    ids, counts = np.random.default_rng(0).integers(0, 20, (6, 12, 17)), []
    for batch in ids:
        model.train_on_batch(batch[:, :-1], batch[:, 1:])
        counts.append(len(os.listdir(sys.argv[1])))
    print(*counts)
"""


@pytest.mark.any_backend
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="no XLA")
def test_after_two_steps_xla_compiles_nothing(tmp_path):
    (dump := tmp_path / "dump").mkdir()
    flags = f"--xla_dump_to={dump} --xla_dump_hlo_as_proto=true"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, str(dump)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counts = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(counts) == 2
    for first, second, *later in counts:
        assert 0 < first <= second
        assert set(later) == {second}

"""Two devices of a strategy of TensorFlow's end with the weights, scores and counters of one."""

import os
import subprocess
import sys

import keras
import pytest


@pytest.mark.rare
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="strategies are TensorFlow's")
def test_a_training_in_a_strategy_is_that_of_one_device():
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.ops.replicas_run"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr[-3000:]

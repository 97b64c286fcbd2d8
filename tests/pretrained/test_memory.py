"""Loading takes the memory of the model and of about one tensor, however many there are."""

import math
import pathlib
import subprocess
import sys

import pytest

from keras_seq import pretrained
from keras_seq.models import PUBLISHED_CONFIGS

SCRIPT = """
import pathlib, re, sys
from keras_seq import pretrained

def peak():  # bytes; the maxrss of getrusage would begin with that of the process that started this one
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

pretrained.load(sys.argv[1])  # a tiny one: what TensorFlow allocates once
before = peak()
model = pretrained.load(sys.argv[2]).model
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_the_peak_is_the_model_and_its_largest_tensor(tmp_path):
    published = PUBLISHED_CONFIGS["gpt2"]
    model = published.config.build_model(published.vocabulary_size)
    pretrained.save(model, tmp_path / "gpt2")
    tiny = type(published.config)(8, num_layers=1, num_heads=1, feed_forward_dim=8, context_length=4)
    pretrained.save(tiny.build_model(5), tmp_path / "tiny")
    sizes = [4 * math.prod(weight.shape) for weight in model.weights]
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "tiny", tmp_path / "gpt2"], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert int(process.stdout) < sum(sizes) + 1.2 * max(sizes)

"""Law 7 in earnest: processes that are killed, many steps, two processes of one seed. A minute and more each."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_seq.data import RandomWindows
from keras_seq.models import MODELS

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


def driver(name, *options, **variables):
    done = subprocess.run(
        [sys.executable, HERE / name, *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(name, tmp_path):
    kills = 20 if name in ("lstm", "transformer") else 5
    table = driver("kills.py", name, "--kills", kills, "--keep", tmp_path)
    assert table.splitlines()[-1].split() == ["all", str(kills), str(kills), "0"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_so_it_does_on_other_backends(name, backend, tmp_path):
    pytest.importorskip(backend, exc_type=ImportError)
    table = driver("kills.py", name, "--kills", 3, "--keep", tmp_path, KERAS_BACKEND=backend)
    assert table.splitlines()[-1].split() == ["all", "3", "3", "0"]


@pytest.mark.slow
def test_over_many_steps_neither_memory_nor_time_nor_files_grow():
    print(driver("long_run.py"))


@pytest.mark.slow
def test_one_seed_gives_the_same_bits_in_two_processes(tmp_path):
    prints = [json.loads(driver("long_run.py", "--digest", PYTHONHASHSEED=str(n)).splitlines()[-1]) for n in range(2)]
    assert prints[0] == prints[1]
    assert prints[0]["loss"] > 0


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_threads_of_the_pipeline_change_no_batch(threads):
    windows = RandomWindows(np.arange(2000, dtype="int32") % 9, batch_size=4, sequence_length=5, seed=1)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    got = windows.dataset(20, 60).with_options(options).as_numpy_iterator()
    for step, (x, y) in zip(range(20, 60), got, strict=True):
        for a, b in zip((x, y), windows.batch(step), strict=True):
            np.testing.assert_array_equal(a, b)

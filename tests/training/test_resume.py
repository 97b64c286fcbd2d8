"""To stop and to go on changes nothing."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_seq.data import RandomWindows
from keras_seq.evaluation import evaluator, streaming
from keras_seq.models import MODELS
from keras_seq.tracking import tracker
from keras_seq.training import TrainingInterrupted, checkpoints
from tests.training.backend_run import Killed
from tests.training.ends import differences, end


def assert_same_run(folder, whole):
    """Weights, optimizer, seeds, carried state, partial sums, curves and final scores, to the last bit."""
    expected = end(whole)
    assert {name.partition("/")[0] for name in expected["checkpoints"]} >= {"step-00000008.safetensors"}
    assert differences(end(folder), expected) == []


@pytest.mark.parametrize(
    ("name", "log_every"),
    [
        pytest.param("lstm", 3, marks=pytest.mark.slow),
        pytest.param("transformer", 2, marks=pytest.mark.slow),
    ],  # at step 4, an interval of three steps is open
)
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tiny_run, tmp_path, monkeypatch, name, log_every):
    tiny_run(tmp_path / "whole", name, log_every=log_every)

    save = checkpoints.save

    def save_and_die(*arguments):
        save(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", save_and_die)
        with pytest.raises(Killed):
            tiny_run(tmp_path / "parts", name, log_every=log_every)
    with open(tmp_path / "parts/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 6, "spl')  # what a kill may leave
    tiny_run(tmp_path / "parts", name, log_every=log_every)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.usefixtures("eagerly")
def test_ctrl_c_writes_a_checkpoint_gives_the_signals_back_and_the_run_can_go_on(
    tiny_run, finished_run, tmp_path, monkeypatch
):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    class Impatient(tracker.ProgressBar):
        """A user who presses Ctrl-C while step 5 runs."""

        def on_train_batch_begin(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 4:
                os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr("keras_seq.training.trainer.ProgressBar", Impatient)
        with pytest.raises(TrainingInterrupted) as stop:
            tiny_run(tmp_path / "parts")
    assert stop.value.path == tmp_path / "parts/checkpoints/step-00000005.safetensors"
    assert stop.value.path.exists()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert not (tmp_path / "parts/result.json").exists()
    tiny_run(tmp_path / "parts")
    assert_same_run(tmp_path / "parts", finished_run[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_a_run_that_was_stopped_in_a_validation_goes_on_as_if_it_had_not_been(tiny_run, tmp_path, monkeypatch, name):
    """Between the two losses of a part of the text, and between those of all of it."""
    often = {"validate_every": 4, "validation_characters": 40}
    tiny_run(tmp_path / "whole", name, **often)

    def pressed(scores):
        """Within this, a signal comes when so many scores are done."""
        left = iter(range(scores))

        def track_progress(parts, total):
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGINT)
            yield from parts

        return track_progress

    for scores, step in ((1, 4), (5, 8)):
        with monkeypatch.context() as patch:
            reads = pressed(scores)
            for module in (evaluator, streaming):
                patch.setattr(module, "track_progress", reads)
            with pytest.raises(TrainingInterrupted) as stop:
                tiny_run(tmp_path / "parts", name, **often)
        assert stop.value.path.name == f"step-{step:08d}.safetensors"
    tiny_run(tmp_path / "parts", name, **often)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


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

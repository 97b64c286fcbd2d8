"""Several jobs share the runs of a folder: each is done once, also when a job is killed; claims are taken over."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import keras
import pytest

from experiments.frame import claims, jobs
from experiments.frame.claims import claim
from experiments.frame.interruption import exit_interrupted
from experiments.frame.machine import Machine, split_options
from keras_seq.training import TrainingInterrupted, processes
from tests.experiments import jobs_run
from tests.training.ends import end as runs_end
from tests.training.test_devices import on_jax, output

ROOT = pathlib.Path(__file__).parents[2]
HERE = claims.platform.node()


def held_elsewhere(run, age=0.0):
    """Make the claim of another machine, as old as that."""
    path = run.parent / ".claims" / run.name
    path.parent.mkdir(exist_ok=True)
    path.write_text("1 another-machine")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_a_run_is_claimed_once_and_free_afterwards(tmp_path):
    with claim(tmp_path / "a") as first, claim(tmp_path / "a") as second, claim(tmp_path / "b") as other:
        assert (first, second, other) == (True, False, True)
        assert (tmp_path / ".claims/a").read_text() == f"{os.getpid()} {HERE}"
    assert not (tmp_path / ".claims/a").exists()
    with claim(tmp_path / "a") as again:
        assert again


def test_the_claim_of_another_machine_holds_while_its_heart_beats(tmp_path):
    path = held_elsewhere(tmp_path / "a", age=claims.STALE_SECONDS / 2)
    with claim(tmp_path / "a") as claimed:
        assert not claimed
    assert path.read_text() == "1 another-machine"
    held_elsewhere(tmp_path / "a", age=claims.STALE_SECONDS * 2)
    with claim(tmp_path / "a") as claimed:
        assert claimed
    assert sorted(p.name for p in path.parent.iterdir()) == ["a.lock"]


def test_the_claim_of_a_process_of_this_machine_that_ended_is_taken_over_at_once(tmp_path):
    (tmp_path / ".claims").mkdir()
    (tmp_path / ".claims/a").write_text(f"999999 {HERE}")
    with claim(tmp_path / "a") as claimed:
        assert claimed


def test_a_claim_that_was_lost_stops_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.01)
    killed = []
    monkeypatch.setattr(claims.os, "kill", lambda *arguments: killed.append(arguments))
    with claim(tmp_path / "a") as claimed:
        assert claimed
        path = held_elsewhere(tmp_path / "a")
        deadline = time.monotonic() + 10
        while not killed and time.monotonic() < deadline:
            time.sleep(0.01)
    assert killed == [(os.getpid(), claims.signal.SIGTERM)]
    assert path.read_text() == "1 another-machine"  # it is not ours to remove


def test_the_heart_of_a_claim_beats(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.01)
    with claim(tmp_path / "a"):
        path = tmp_path / ".claims/a"
        os.utime(path, (1, 1))
        deadline = time.monotonic() + 10
        while path.stat().st_mtime == 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks here")
def test_a_killed_job_leaves_its_run_to_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.02)
    for _, train in jobs_run.runs(tmp_path / "alone"):
        train()
    statuses, starts, ends = jobs_run.trial(tmp_path / "jobs", moment=0.3, victim=1)
    assert (statuses, ends) == ([0, 9, 0], [1] * jobs_run.RUNS)
    assert sum(starts) in (jobs_run.RUNS, jobs_run.RUNS + 1)
    assert jobs_run.end(tmp_path / "jobs") == jobs_run.end(tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks here")
def test_ten_kills_of_ten_leave_every_run_done_once():
    done = subprocess.run(
        [sys.executable, "-m", "tests.experiments.jobs_run", "--trials", "10"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    last = "10 of 10: every run ended once, as alone"
    assert done.stdout.splitlines()[-1] == last, done.stdout + done.stderr[-3000:]


@pytest.mark.rare
def test_an_experiment_with_jobs_ends_as_one_without(tmp_path):
    command = [sys.executable, "-m", "experiments.compare", "--smoke", "--models", "lstm", "--num-seeds", "2"]
    threads = dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"), "1")
    options = {"cwd": ROOT, "env": {**os.environ, **threads, "PYTHONPATH": str(ROOT)}, "check": True}
    ends = []
    for name, further in (("alone", []), ("jobs", ["--jobs", "2"])):
        subprocess.run([*command, "--log-dir", tmp_path / name, *further], capture_output=True, **options)
        (folder,) = (tmp_path / name / "compare").iterdir()
        assert (folder / "compare.md").exists()
        ends.append({run: runs_end(folder / run) for run in ("lstm-seed0", "lstm-seed1")})
    assert ends[0] == ends[1]
    assert (folder / "job-1.log").exists()


def test_cores_and_gpus_are_divided(monkeypatch):
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "NPROC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert jobs._gpus() == ["3", "5"]
    assert jobs._share(3, 2, ["3", "5"])["CUDA_VISIBLE_DEVICES"] == "5"
    assert jobs._share(0, 2, [])["TF_NUM_INTRAOP_THREADS"] == "2"
    assert "CUDA_VISIBLE_DEVICES" not in jobs._share(0, 2, [])


def test_the_options_of_the_process_may_stand_anywhere():
    words = ["--tokens", "5", "--devices", "4", "--shard_weights", "--models", "lstm", "--mesh=data=2,model=2"]
    machine, others = split_options(words, "experiments.compare", "")
    assert machine == Machine(devices="4", mesh="data=2,model=2", shard_weights=True)
    assert others == ["--tokens", "5", "--models", "lstm"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0"], "--jobs 0: expected a number of processes"),
        (["--jobs"], "--jobs"),
        (["--jobs", "two"], "two"),
        (["--devices", "-1"], "--devices -1: expected a number of devices, or all"),
        (["--jobs", "2", "--devices", "2"], "--jobs 2: expected it without --devices and --mesh"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        split_options(words, "experiments.compare", "")


def test_only_the_first_process_says_where_a_stop_left_a_checkpoint(monkeypatch, capsys, tmp_path):
    stop = TrainingInterrupted(tmp_path / "compare/time/lstm-seed0/checkpoints/step-5", signal.SIGTERM)
    for is_first in (True, False):
        monkeypatch.setattr(processes, "is_first", lambda is_first=is_first: is_first)
        with pytest.raises(SystemExit) as stopped:
            exit_interrupted("experiments.compare", stop)
        assert stopped.value.code == 128 + signal.SIGTERM
        assert ("--resume" in capsys.readouterr().err) == is_first


REFUSED = {
    "--devices 3 --batch-size 10": "--batch-size 10: expected a multiple of the 3 devices along data",
    "--devices 9": "--devices 9: expected 1 to 4, the devices that JAX finds",
    "--mesh data=2,model=4": "--mesh data=2,model=4: expected 1 to 4, the devices that JAX finds",
    "--mesh 2x2": "--mesh 2x2: expected sizes of its axes, such as data=4 or data=2,model=2",
    "--mesh data=1,model=3": "--transformer.num-heads 4: expected a multiple of 3, the devices along model of --mesh",
    "--shard-weights": "--shard-weights: expected --devices or --mesh beside it",
    "--devices 1 --shard-weights": "--shard-weights: expected several devices along data, not --devices 1",
}
ON_DEVICES = """
import contextlib, io, json, sys
import keras
from experiments.compare.__main__ import main
messages = {}
for words in json.loads(sys.argv[1]):
    keras.distribution.set_distribution(None)
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.suppress(SystemExit):
        main(["--tokens", "9k", "--models", "transformer", "--log-dir", sys.argv[2], *words.split()])
    messages[words] = errors.getvalue()
print(json.dumps(messages))
"""


@pytest.mark.rare
def test_what_does_not_fit_the_devices_is_refused_before_a_model_is_built(tmp_path):
    process = on_jax("-c", ON_DEVICES, json.dumps([*REFUSED]), tmp_path, simulated=4)
    messages = json.loads(output(process).splitlines()[-1])
    for words, message in REFUSED.items():
        assert messages[words].startswith(f"experiments.compare: {message}"), (words, messages[words])
        assert messages[words].count("\n") == 1
    assert not [*tmp_path.rglob("config.json")]


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="it is allowed there")
def test_several_devices_are_refused_where_keras_has_none(refuses):
    refuses("compare", "--smoke --devices 2", "--devices 2: several devices are used on JAX only")
    refuses("scaling", "--smoke --mesh data=2", "--mesh data=2: several devices are used on JAX only")

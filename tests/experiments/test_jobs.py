"""Several jobs share the runs of a folder: each is done once, also when a job is killed; claims are taken over."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import types
from typing import Annotated

import keras
import pytest
import tyro

from experiments.common import jobs
from experiments.common.command import Machine, split_options, start_or_resume
from experiments.common.jobs import claim
from keras_seq import training
from keras_seq.commands import exit_status
from keras_seq.files import write_json
from keras_seq.runs import folders
from keras_seq.runs.folders import check_same_corpus
from keras_seq.training import TrainingDiverged, TrainingInterrupted, load_result, run_folder
from keras_seq.training.run_folder import lock_run
from tests.experiments import jobs_run
from tests.training.ends import end as runs_end
from tests.training.test_distributed import on_jax, output


@dataclasses.dataclass(frozen=True)
class Part:
    """A part."""

    units: int = 4


@dataclasses.dataclass(frozen=True)
class Config:
    """Options."""

    tokens: int = 100
    num_seeds: int = 1
    models: tuple[str, ...] = ("lstm",)
    corpus: str = "pydoc"
    log_dir: str = "logs"
    resume: str | None = None
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    part: Part = dataclasses.field(default_factory=Part)
    train: training.TrainConfig = dataclasses.field(default_factory=training.TrainConfig)


SAVED = Config(tokens=50, models=("gru", "rnn"), part=Part(units=7))


@pytest.fixture
def folder(tmp_path):
    """Two runs, one of them finished, and a plan."""
    folder = tmp_path / "test/20260101-000000"
    for name in ("gru-seed0", "rnn-seed0"):
        (folder / name).mkdir(parents=True)
        run_folder.write_checksummed(
            folder / name / "config.json", {"experiment": dataclasses.asdict(SAVED), "seed": 0}
        )
    training.write_result(folder / "gru-seed0", {"loss": 1.0})
    write_json(folder / "plan.json", {})
    return folder


def resume(folder, *options):
    return new("--resume", str(folder), *options)


def _begin(*options):
    return start_or_resume(Config, "test", "A test.", [*options], smoke={}, machine=Machine())


def new(*options):
    with _begin(*options) as begun:
        return begun


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("place", ["", "gru-seed0", "rnn-seed0"])
def test_the_settings_are_those_of_the_folder_also_when_a_run_in_it_is_named(folder, place):
    before = contents(folder)
    assert resume(folder / place) == (SAVED, folder)
    assert contents(folder) == before


def test_the_word_may_stand_anywhere_and_with_an_equals_sign(folder):
    arguments = ["--train.log-every", "7", f"--resume={folder}"]
    with start_or_resume(Config, "test", "A test.", arguments, smoke={}, machine=Machine()) as (given, _):
        pass
    assert given == dataclasses.replace(SAVED, train=training.TrainConfig(log_every=7))


def test_intervals_may_change_and_what_is_finished_stays(folder):
    given, _ = resume(folder, "--train.log-every", "7", "--tokens", "50", "--part.units", "7")
    assert given == dataclasses.replace(SAVED, train=training.TrainConfig(log_every=7))
    assert load_result(folder / "gru-seed0") == {"loss": 1.0}
    assert resume(folder)[0] == given  # and it is what the runs go on with from then on
    assert run_folder.read_checksummed(folder / "rnn-seed0/config.json")["seed"] == 0


def test_patience_may_change_and_what_has_stopped_early_goes_on(folder):
    given, _ = resume(folder, "--train.patience", "3")
    assert given == dataclasses.replace(SAVED, train=training.TrainConfig(patience=3))
    assert load_result(folder / "gru-seed0") is None
    assert resume(folder)[0] == given


def test_more_tokens_make_what_is_finished_go_on(folder, capsys):
    given, _ = resume(folder, "--tokens", "80")
    assert given.tokens == 80
    assert load_result(folder / "gru-seed0") is None
    assert resume(folder)[0].tokens == 80
    assert "tokens was 50 and is 80" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "changes"),
    [("--num-seeds 3", {"num_seeds": 3}), ("--models gru rnn lstm", {"models": ("gru", "rnn", "lstm")})],
)
def test_more_seeds_and_models_leave_the_runs_that_are_there_as_they_are(folder, words, changes):
    assert resume(folder, *words.split())[0] == dataclasses.replace(SAVED, **changes)
    assert load_result(folder / "gru-seed0") == {"loss": 1.0}
    assert (folder / "plan.json").exists()
    assert resume(folder)[0] == dataclasses.replace(SAVED, **changes)


def test_while_another_process_trains_nothing_changes(folder):
    before = contents(folder)
    with lock_run(folder / "rnn-seed0"), pytest.raises(BlockingIOError, match="another process trains there"):
        resume(folder, "--tokens", "80")
    assert {path: path.read_bytes() for path in before} == before


def test_a_config_that_is_corrupt_is_named_and_nothing_changes(folder):
    (folder / "rnn-seed0/config.json").write_text("{")
    before = contents(folder)
    with pytest.raises(ValueError, match=r"rnn-seed0/config\.json is corrupt"):
        resume(folder, "--tokens", "80")
    assert contents(folder) == before


def test_a_folder_of_an_older_version_is_refused_and_nothing_changes(folder):
    for run in ("gru-seed0", "rnn-seed0"):
        (folder / run / "config.json").write_text('{"experiment": {"tokens": 50}, "seal": "ab"}')
    before = contents(folder)
    with pytest.raises(ValueError, match=r"gru-seed0/config\.json .*keras_seq 0\.1"):
        resume(folder)
    assert contents(folder) == before


def test_runs_that_name_no_text_do_not_go_on_with_one(folder):
    with pytest.raises(ValueError, match=r"config\.json does not name the corpus"):
        check_same_corpus(folder, types.SimpleNamespace(name="pydoc", sha256="ab"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--corpus", "shakespeare"), "corpus was 'pydoc' and is 'shakespeare'"),
        (("--part.units", "8"), "part.units was 7 and is 8"),
        (("--models", "gru"), r"models was \['gru', 'rnn'\] and is \['gru'\]"),
        (("--models", "rnn", "gru"), r"models was .* and is \['rnn', 'gru'\].*lists at their end"),
        (("--models", "lstm", "gru", "rnn"), r"models was .* and is \['lstm', 'gru', 'rnn'\]"),
        (("--train.learning-rate", "0.5"), "train.learning_rate was None and is 0.5"),
        (("--tokens", "40"), "tokens was 50 and is 40"),
        (("--smoke",), "smoke was False and is True"),
        (
            ("--tokens", "80", "--corpus", "x", "--part.units", "8"),
            r"corpus .*; part.units .*Options that can change: .*tokens",
        ),
    ],
)
def test_what_has_to_stay_is_refused_by_name_and_nothing_changes(folder, options, message):
    before = contents(folder)
    with pytest.raises(ValueError, match=message):
        resume(folder, *options)
    assert contents(folder) == before


def test_the_folder_of_another_experiment_is_refused(folder):
    @dataclasses.dataclass(frozen=True)
    class Other:
        log_dir: str = "logs"
        resume: str | None = None
        smoke: bool = False

    with (
        pytest.raises(ValueError, match="such as corpus: it is that of another experiment or version"),
        start_or_resume(Other, "other", "Another.", ["--resume", str(folder)], smoke={}, machine=Machine()),
    ):
        pass


def test_where_no_run_is_none_goes_on(tmp_path):
    with pytest.raises(ValueError, match="has no run with a config"):
        resume(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("log_dir", "there"), [("file", "file"), ("file/deep/er", "file"), ("link", "link"), ("logs", "logs/test")]
)
def test_where_a_file_is_no_runs_can_go(tmp_path, log_dir, there):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/test").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ValueError, match=f"--log-dir .*{log_dir}: .*/{there} is not a folder"):
        new("--log-dir", str(tmp_path / log_dir))


def test_two_that_begin_in_the_same_second_have_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.setattr(folders.time, "strftime", lambda *_: "20260101-000000")
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(_begin("--log-dir", str(tmp_path))) for _ in range(3)]
        names = [folder.name for _, folder in begun]
        assert names == [f"20260101-000000-pydoc{suffix}" for suffix in ("", "-2", "-3")]
        (begun[1][1] / "plan.json").touch()
    assert [path.name for path in (tmp_path / "test").iterdir()] == names[1:2]  # in the others nothing was written
    assert [path.name for path in begun[1][1].iterdir()] == ["plan.json"]


def test_where_nothing_is_written_no_folder_stays(tmp_path):
    def fail():
        with _begin("--log-dir", str(tmp_path / "logs/deep")):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not [*tmp_path.iterdir()]


def test_a_folder_in_which_another_process_works_is_refused_and_nothing_changes(folder):
    before = contents(folder)
    with lock_run(folder), pytest.raises(BlockingIOError, match=f"process {os.getpid()} "):
        resume(folder)
    with _begin("--resume", str(folder)), pytest.raises(BlockingIOError):
        resume(folder / "gru-seed0")
    assert {path: path.read_bytes() for path in before} == before


def test_options_that_the_experiment_refuses_leave_the_folder_as_it_was_unless_a_run_went_on(folder):
    before = contents(folder)
    for error in (ValueError("refused"), KeyboardInterrupt("refused")):  # Ctrl-C while the text is read
        with pytest.raises(type(error), match="refused"), _begin("--resume", str(folder), "--tokens", "80"):
            raise error
        assert contents(folder) == before
    assert load_result(folder / "gru-seed0") == {"loss": 1.0}

    def remove_and_stop():
        (folder / "gru-seed0/result.json").unlink()  # to train it anew
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), _begin("--resume", str(folder), "--num-seeds", "5"):
        remove_and_stop()
    assert contents(folder) == before

    def go_on_and_fail(path):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        raise ValueError("refused")

    # a run has gone on, or has ended and has no checkpoints
    for tokens, name in ((80, "checkpoints/step-00000080.safetensors"), (90, "result.json")):
        with pytest.raises(ValueError, match="refused"), _begin("--resume", str(folder), "--tokens", str(tokens)):
            go_on_and_fail(folder / "rnn-seed0" / name)
        assert resume(folder)[0].tokens == tokens


def test_a_run_that_diverges_does_not_keep_the_others_from_being_trained(tmp_path):
    trained = []

    def train(name):
        trained.append(name)
        if name == "b":
            raise TrainingDiverged("The loss was NaN.")
        return {}

    with pytest.raises(TrainingDiverged, match=r"^b: The loss was NaN\. The other runs are finished"):
        jobs.run_all([(tmp_path / name, 0, lambda name=name: train(name)) for name in "abc"])
    assert trained == ["a", "b", "c"]


def test_a_terminal_stops_the_command_and_not_its_workers(tmp_path, monkeypatch):
    """Ctrl-C goes to the group of the command: workers of the same group would hear it beside the command's SIGTERM."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c 'import os; print(os.getpgrp())'\n")
    program.chmod(0o755)
    monkeypatch.setattr(jobs.sys, "executable", str(program))
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.01)
    jobs.run_workers("experiments.compare", tmp_path, 1)
    assert int((tmp_path / "job-0.log").read_text()) != os.getpgrp()


def test_what_kills_have_left_is_removed_also_beside_the_runs_and_from_runs_that_are_finished(folder):
    before = {*folder.rglob("*")}
    names = [".compare.4194305.partial.json", "gru-seed0/checkpoints/.events.out.events.1.4194305.partial.v2"]
    names += ["gru-seed0/.model.4194305.partial.keras", "gru-seed0/.pid"]
    (folder / "gru-seed0/checkpoints").mkdir()
    for name in names:
        (folder / name).touch()
    resume(folder)
    assert {*folder.rglob("*")} - before == {folder / "gru-seed0/checkpoints", folder / "gru-seed0/.lock"}


def test_the_settings_come_from_whichever_run_has_them_whole(folder):
    (folder / "gru-seed0/config.json").write_text("{")
    assert resume(folder)[0] == SAVED
    (folder / "rnn-seed0/config.json").write_text("{")
    with pytest.raises(ValueError, match=r"gru-seed0/config\.json is corrupt.*remove \S*gru-seed0 to train this run"):
        resume(folder)


ROOT = pathlib.Path(__file__).parents[2]


def test_a_run_is_claimed_once_and_free_afterwards(tmp_path):
    with claim(tmp_path / "a") as first, claim(tmp_path / "a") as second, claim(tmp_path / "b") as other:
        assert (first, second, other) == (True, False, True)
    with claim(tmp_path / "a") as again:
        assert again


def test_workers_measure_in_turn_and_a_process_alone_leaves_no_lock(tmp_path, monkeypatch):
    with jobs.in_turn(tmp_path / "a"), jobs.in_turn(tmp_path / "a"):
        assert not [*tmp_path.iterdir()]
    monkeypatch.setenv(jobs.WORKER, "0")
    with jobs.in_turn(tmp_path / "a"), claim(tmp_path / "a") as claimed:
        assert not claimed
    with claim(tmp_path / "a") as claimed:
        assert claimed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks here")
@pytest.mark.filterwarnings("ignore:This process .*is multi-threaded:DeprecationWarning")  # of Python 3.12, on forks
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
    machine, others = split_options(words, "experiments.compare")
    assert machine == Machine(devices="4", mesh="data=2,model=2", shard_weights=True)
    assert others == ["--tokens", "5", "--models", "lstm"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0"], "--jobs 0: expected a number of processes"),
        (["--devices", "-1"], "--devices -1: expected a number of devices, or all"),
        (["--jobs", "2", "--devices", "2"], "--jobs 2: expected it without --devices and --mesh"),
    ],
)
def test_what_cannot_be_meant_is_refused(fails, words, message):
    assert message in fails(lambda words: split_options(words, "experiments.compare"), *words)


def test_only_the_first_process_says_where_a_stop_left_a_checkpoint(monkeypatch, capsys, tmp_path):
    stop = TrainingInterrupted(tmp_path / "compare/time/lstm-seed0/checkpoints/step-5", signal.SIGTERM)
    for is_first in (True, False):
        monkeypatch.setattr(exit_status.distributed, "is_first", lambda is_first=is_first: is_first)
        with pytest.raises(SystemExit) as stopped:
            exit_status.exit_interrupted("experiments.compare", stop)
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

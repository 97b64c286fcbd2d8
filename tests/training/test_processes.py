"""Several processes on this machine train one model as one would; what cannot be meant is refused by one sentence.

process_kills.py has the random kills, in numbers.
"""

import json
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_seq.training import LostProcess, processes
from tests.training.ends import points
from tests.training.process_kills import ROOT, SENTENCE, end, environment, hang, says_why, start, train

ADDRESSES, NUMBER, ID = processes.ADDRESSES, processes.NUMBER, processes.ID
NAMES = ("lstm", "transformer", "mamba")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of two processes, and their folder."""
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("processes")
    for status, errors, _ in train(folder, *NAMES):
        assert status == 0, errors[-3000:]
    return [json.loads((folder / f"results-{n}.json").read_text()) for n in range(2)], folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The results of one process, and its folder."""
    folder = tmp_path_factory.mktemp("alone")
    variables = {k: v for k, v in environment(0, 1).items() if not k.startswith("KERAS_DISTRIBUTION")}
    command = [sys.executable, "-m", "tests.training.devices_run", "process", str(folder), *NAMES]
    subprocess.run(command, cwd=ROOT, env=variables, check=True, capture_output=True)
    return json.loads((folder / "results-0.json").read_text()), folder


@pytest.mark.rare
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_train_as_one(whole, alone, name):
    (first, second), (one, _) = whole[0], alone
    assert first[name] == second[name]  # what they log, score and write, to the last bit
    assert len(one[name]["losses"]) == 50
    for key in ("losses", "scores", "score"):
        np.testing.assert_allclose(first[name][key], one[name][key], atol=1e-5)
    assert first[name]["texts"] == one[name]["texts"]
    states = [spec for path, spec in first["lstm"]["shardings"].items() if path.endswith("/state")]
    assert states
    assert all(spec[0] == "data" for spec in states)


@pytest.mark.rare
@pytest.mark.parametrize("name", NAMES)
def test_one_of_two_processes_writes_what_one_alone_does(whole, alone, name):
    curves = [[(tag, step) for tag, step, _ in points(folder / name)] for _, folder in (whole, alone)]
    assert curves[0] == curves[1]
    assert any(tag.startswith("Validation/loss_by_position") for tag, _ in curves[0])
    files = [
        sorted(p.name for p in (folder / name).rglob("*") if "tfevents" not in p.name) for _, folder in (whole, alone)
    ]
    assert files[0] == files[1]
    assert len([*(whole[1] / name).glob("events*")]) == 1


@pytest.mark.rare
def test_when_a_process_is_killed_the_other_says_so_and_the_same_command_goes_on(whole, tmp_path):
    for victim, kill in ((1, (12, 0)), (0, (25, 0.02))):
        ends = train(tmp_path, "lstm", victim=victim, kill=kill)
        assert ends[victim][0] == -9
        status, errors, seconds = ends[1 - victim]
        assert (status, says_why(errors)) == (1, True), errors[-2000:]
        assert seconds < 60
    assert [status for status, *_ in train(tmp_path, "lstm")] == [0, 0]
    assert end(tmp_path / "lstm") == end(whole[1] / "lstm")


@pytest.mark.slow
def test_when_a_process_hangs_the_other_ends_within_a_minute(tmp_path):
    pytest.importorskip("jax")
    for _, status, errors, seconds in hang(tmp_path):
        assert (status, says_why(errors)) == (1, True), errors[-2000:]
        assert seconds < 60


@pytest.mark.slow
def test_ten_kills_of_ten_are_survived():
    pytest.importorskip("jax")
    command = [sys.executable, "-m", "tests.training.process_kills", "--kills", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.stdout.splitlines()[-1] == "10 of 10 kills survived", done.stdout + done.stderr[-3000:]


COMPARE = ["-m", "experiments.compare", "--smoke", "--log-dir"]


@pytest.mark.rare
def test_processes_of_different_settings_refuse_before_a_model_is_built(tmp_path):
    pytest.importorskip("jax")
    both = start(*([*COMPARE, tmp_path, "--devices", "all", "--models", name] for name in ("lstm", "gru")))
    for process in both:
        _, errors = process.communicate(timeout=120)
        (message,) = [line for line in errors.splitlines() if line.startswith("experiments.compare: ")]
        assert process.returncode == 2, errors
        assert "The processes were started with different settings (models" in message
        assert SENTENCE not in errors
    assert not [*tmp_path.rglob("config.json")]


@pytest.mark.slow
def test_a_comparison_in_two_processes_leaves_one_report(tmp_path):
    pytest.importorskip("jax")
    command = [*COMPARE, tmp_path, "--devices", "all", "--models", "lstm", "transformer"]
    for process in start(command, command):
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors[-3000:]
    (folder,) = (tmp_path / "compare").iterdir()
    assert {"compare.md", "compare.html", "lstm-seed0", "transformer-seed0"} <= {path.name for path in folder.iterdir()}


def test_a_port_that_is_taken_is_refused(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv(ADDRESSES, f"localhost:{port}")
        monkeypatch.setenv(NUMBER, "2")
        monkeypatch.setenv(ID, "0")
        with pytest.raises(ValueError, match=f"localhost:{port}: port {port} is taken; name another one"):
            processes._from_environment()
        monkeypatch.setenv(ID, "1")
        assert processes._from_environment()["process_id"] == 1  # it listens nowhere


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({NUMBER: "two", ID: "0"}, f"{NUMBER}=two: expected an integer beside {ADDRESSES}"),
        ({NUMBER: "2"}, f"{ID}=: expected an integer beside {ADDRESSES}"),
        ({NUMBER: "2", ID: "2"}, f"{ID}=2: expected 0 to 1 with {NUMBER}=2, and one address or 2"),
        ({ADDRESSES: "a:1,b:2,c:3", NUMBER: "2", ID: "1"}, f"{ID}=1: expected 0 to 1 .* one address or 2"),
        ({ADDRESSES: "here", NUMBER: "2", ID: "1"}, f"{ADDRESSES}=here: expected HOST:PORT of the first process"),
        ({ADDRESSES: "here:99999", NUMBER: "2", ID: "1"}, f"{ADDRESSES}=here:99999: expected HOST:PORT"),
    ],
)
def test_variables_that_name_no_processes_are_refused(variables, message, monkeypatch):
    for name, value in {ADDRESSES: "here:1234", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        processes._from_environment()


def test_schedulers_are_recognized(monkeypatch):
    for name in (ADDRESSES, processes.KUBERNETES, *processes.SCHEDULERS):
        monkeypatch.delenv(name, raising=False)
    assert not processes.are_requested()
    for name, value in (("SLURM_NTASKS", "2"), ("OMPI_COMM_WORLD_SIZE", "8"), (processes.KUBERNETES, "0")):
        monkeypatch.setenv(name, value)
        assert processes.are_requested()
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert not processes.are_requested()


def test_settings_that_differ_are_named(monkeypatch):
    others = {"tokens": 5, "model": "lstm"}

    def of_both(values):
        theirs = [len(others)] if len(values) == 1 else [processes._digest(*item) for item in others.items()]
        return np.array([values, theirs])

    monkeypatch.setattr(processes, "of_all", of_both)
    processes.check_equal({"tokens": 5, "model": "lstm"})
    with pytest.raises(ValueError, match=r"different settings \(tokens\): start all by the same command"):
        processes.check_equal({"tokens": 6, "model": "lstm"})
    with pytest.raises(ValueError, match=r"different settings \(another version\)"):
        processes.check_equal({"tokens": 6})


def test_what_jax_says_of_a_lost_process_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr(processes, "count", lambda: 2)
    with pytest.raises(LostProcess, match=SENTENCE), processes.noticing_loss():
        raise ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer")
    with pytest.raises(ValueError, match="another mistake"), processes.noticing_loss():
        raise ValueError("another mistake")
    monkeypatch.setattr(processes, "count", lambda: 1)
    with pytest.raises(RuntimeError, match="UNAVAILABLE") as caught, processes.noticing_loss():
        raise RuntimeError("UNAVAILABLE")
    assert not isinstance(caught.value, LostProcess)


def test_one_process_has_its_folder_and_its_values_to_itself(tmp_path):
    assert processes.of_all([3, 4]).tolist() == [[3, 4]]
    assert processes.largest(3, 4) == [3, 4]
    processes.check_equal({"tokens": 5})
    with processes.private_folder(tmp_path) as folder:
        assert folder == tmp_path
    assert processes.whole_value(keras.Variable([1.0, 2.0])).tolist() == [1, 2]


def test_all_processes_take_the_seed_of_the_first(monkeypatch):
    monkeypatch.setattr(processes, "of_all", lambda values: np.array([[5], [6]]))
    processes.share_seed()
    drawn = keras.ops.convert_to_numpy(keras.random.uniform((3,)))
    keras.utils.set_random_seed(5)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(keras.random.uniform((3,))), drawn)


def test_another_process_gets_a_copy_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "is_first", lambda: False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "run" / ".lock").write_text("")
    with processes.private_folder(tmp_path / "run") as copy:
        assert copy != tmp_path / "run"
        assert [path.name for path in copy.iterdir()] == ["config.json"]
        (copy / "more").write_text("")
    assert not copy.exists()
    assert not (tmp_path / "run" / "more").exists()

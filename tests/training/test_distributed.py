"""Several processes on this machine train one model as one would; what cannot be meant is refused by one sentence.

process_kills.py has the random kills, in numbers.
"""

import json
import re
import socket
import subprocess
import sys
import zlib

import keras
import numpy as np
import pytest

from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.models.config import sized
from keras_seq.training import LostProcess, distributed
from tests.training.ends import points
from tests.training.process_kills import ROOT, SENTENCE, end, hang, on_jax, says_why, start, train

ADDRESSES, NUMBER, ID = distributed.ADDRESSES, distributed.NUMBER, distributed.ID
NAMES = ("lstm", "transformer", "mamba")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of two processes, and their folder."""
    folder = tmp_path_factory.mktemp("processes")
    for status, errors, _ in train(folder, *NAMES):
        assert status == 0, errors[-3000:]
    return [json.loads((folder / f"results-{n}.json").read_text()) for n in range(2)], folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The results of one process, and its folder."""
    folder = tmp_path_factory.mktemp("alone")
    output(on_jax("-m", "tests.training.devices_run", "process", folder, *NAMES))
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
            distributed._from_environment()
        monkeypatch.setenv(ID, "1")
        assert distributed._from_environment()["process_id"] == 1  # it listens nowhere


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
        distributed._from_environment()


def test_schedulers_are_recognized(monkeypatch):
    for name in (ADDRESSES, distributed.KUBERNETES, *distributed.SCHEDULERS):
        monkeypatch.delenv(name, raising=False)
    assert not distributed.are_requested()
    for name, value in (("SLURM_NTASKS", "2"), ("OMPI_COMM_WORLD_SIZE", "8"), (distributed.KUBERNETES, "0")):
        monkeypatch.setenv(name, value)
        assert distributed.are_requested()
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert not distributed.are_requested()


def test_settings_that_differ_are_named(monkeypatch):
    others = {"tokens": 5, "model": "lstm"}

    def of_both(values):
        digests = [zlib.crc32(f"{name}={value}".encode()) >> 1 for name, value in others.items()]
        theirs = [len(others)] if len(values) == 1 else digests
        return np.array([values, theirs])

    monkeypatch.setattr(distributed, "of_all", of_both)
    distributed.check_equal({"tokens": 5, "model": "lstm"})
    with pytest.raises(ValueError, match=r"different settings \(tokens\): start all by the same command"):
        distributed.check_equal({"tokens": 6, "model": "lstm"})
    with pytest.raises(ValueError, match=r"different settings \(another version\)"):
        distributed.check_equal({"tokens": 6})


def test_what_jax_says_of_a_lost_process_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr(distributed, "count", lambda: 2)
    with pytest.raises(LostProcess, match=SENTENCE), distributed.noticing_loss():
        raise ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer")
    with pytest.raises(ValueError, match="another mistake"), distributed.noticing_loss():
        raise ValueError("another mistake")
    monkeypatch.setattr(distributed, "count", lambda: 1)
    with pytest.raises(RuntimeError, match="UNAVAILABLE") as caught, distributed.noticing_loss():
        raise RuntimeError("UNAVAILABLE")
    assert not isinstance(caught.value, LostProcess)


def test_one_process_has_its_folder_and_its_values_to_itself(tmp_path):
    assert distributed.of_all([3, 4]).tolist() == [[3, 4]]
    assert distributed.largest(3, 4) == [3, 4]
    distributed.check_equal({"tokens": 5})
    with distributed.private_folder(tmp_path) as folder:
        assert folder == tmp_path
    assert distributed.whole_value(keras.Variable([1.0, 2.0])).tolist() == [1, 2]


def test_all_processes_take_the_seed_of_the_first(monkeypatch):
    monkeypatch.setattr(distributed, "of_all", lambda values: np.array([[5], [6]]))
    distributed.share_seed()
    drawn = keras.ops.convert_to_numpy(keras.random.uniform((3,)))
    keras.utils.set_random_seed(5)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(keras.random.uniform((3,))), drawn)


def test_another_process_gets_a_copy_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "is_first", lambda: False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "run" / ".lock").write_text("")
    with distributed.private_folder(tmp_path / "run") as copy:
        assert copy != tmp_path / "run"
        assert [path.name for path in copy.iterdir()] == ["config.json"]
        (copy / "more").write_text("")
    assert not copy.exists()
    assert not (tmp_path / "run" / "more").exists()


def output(process):
    """Wait for a process, and return what it printed."""
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr[-3000:]
    return stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    output(on_jax("-m", "tests.training.devices_run", "devices", folder, simulated=4))
    return json.loads((folder / "results.json").read_text())


@pytest.mark.rare
@pytest.mark.parametrize("number", ["2", "4", "elastic"])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_on_several_devices_is_that_on_one(results, name, number):
    if f"{name}-{number}" not in results:
        pytest.skip("the LSTM's run, which carries its state, is the one that changes its devices")
    one, several = results[f"{name}-1"], results[f"{name}-{number}"]
    assert len(one["losses"]) == 50
    assert min(one["losses"][-10:]) < one["losses"][0] - 0.005  # it learns
    np.testing.assert_allclose(several["losses"], one["losses"], atol=1e-5)
    np.testing.assert_allclose(several["scores"], one["scores"], atol=1e-5)
    assert several["score"] == pytest.approx(one["score"], abs=1e-5)
    assert several["texts"] == one["texts"]


@pytest.mark.rare
@pytest.mark.parametrize("mesh", ["mesh-False", "mesh-True"])
def test_a_mesh_changes_no_loss(results, mesh):
    one, several = results["transformer-1"], results[mesh]
    np.testing.assert_allclose(several["losses"], one["losses"], atol=1e-5)
    np.testing.assert_allclose(several["scores"], one["scores"], atol=1e-5)


@pytest.mark.rare
def test_states_are_divided_like_rows_and_weights_are_copied(results):
    specs = results["lstm-4"]["shardings"]
    states = {path: spec for path, spec in specs.items() if path.endswith("/state")}
    assert states
    assert all(spec[0] == "data" for spec in states.values())
    assert all(set(spec) <= {"None"} for path, spec in specs.items() if path not in states)


@pytest.mark.rare
def test_heads_are_divided_along_model_and_weights_along_data(results):
    for mesh, other in (("mesh-False", "None"), ("mesh-True", "data")):
        specs = results[mesh]["shardings"]
        kernels = {path: spec for path, spec in specs.items() if "query" in path and "kernel" in path}
        assert len(kernels) > 2  # weights, and the optimizer's variables of each
        assert all(spec == [other, "model"] for spec in kernels.values()), kernels
        assert all(spec == ["model", other] for path, spec in specs.items() if "feed_forward/output/kernel" in path)


def test_a_mesh_is_read_in_any_order():
    assert distributed.parse_mesh("model=2,data=3") == {"data": 3, "model": 2}
    assert distributed.parse_mesh("data=4") == {"data": 4, "model": 1}
    for wrong in ("4", "data=0", "data=2,data=3", "rows=2", "data=2,", "", "data=2 model=2"):
        with pytest.raises(ValueError, match=r"--mesh .*: expected sizes of its axes"):
            distributed.parse_mesh(wrong)


BLOCKS = {"num_layers": 1, "num_encoder_layers": 1, "num_decoder_layers": 1, "context_length": 4}


@pytest.mark.parametrize("name", ["transformer", "gpt2", "llama", "bert", "modernbert", "seq2seq", "t5"])
def test_every_matrix_of_a_block_is_divided(name):
    sizes = {"embedding_dim": 8, "num_heads": 2, "feed_forward_dim": 12, **BLOCKS}
    weights = [
        v
        for v in sized(name, **sizes).build_model(7).trainable_variables
        if re.search("attention|feed_forward", v.path) and len(v.shape) == 2
    ]
    assert len(weights) >= 6
    for weight in weights:
        axes = distributed.divided_axes(weight.path, weight.shape, {"data": 2, "model": 2}, shard_weights=True)
        assert sorted(axes) == ["data", "model"], weight.path
        assert (axes[0] == "model") == weight.path.endswith("output/kernel"), weight.path


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="it is allowed there")
def test_several_devices_need_jax():
    for options in ({"devices": 2}, {"devices": "all"}, {"mesh": "data=2"}):
        with pytest.raises(ValueError, match=r"on JAX only.*expected KERAS_BACKEND=jax"):
            distributed.use_devices(**options)
    with pytest.raises(ValueError, match="--shard-weights: expected --devices"):
        distributed.use_devices(shard_weights=True)
    distributed.use_devices()
    assert keras.distribution.distribution() is None


def test_what_the_devices_do_not_divide_is_refused(monkeypatch):
    monkeypatch.setattr(distributed, "mesh_size", {"data": 4, "model": 2}.get)
    distributed.check_rows("--batch-size", 12)
    with pytest.raises(ValueError, match=r"--batch-size 10: expected a multiple of the 4 devices .* 1 or 2 of them"):
        distributed.check_rows("--batch-size", 10)
    distributed.check_model("lstm", LSTMConfig(units=5))
    distributed.check_model("transformer", TransformerConfig(num_heads=4))
    with pytest.raises(ValueError, match=r"--transformer\.num-heads 1: expected a multiple of 2"):
        distributed.check_model("transformer", TransformerConfig(num_heads=1))


REFUSALS = """
import sys, keras
from keras_seq.training.distributed import use_devices
for options in ({"devices": 3}, {"mesh": "data=2,model=2"}, {"devices": 2, "mesh": "data=1,model=1"}, {"devices": 0}):
    try:
        use_devices(**options)
    except ValueError as error:
        print(error)
use_devices(1)
assert keras.distribution.distribution() is None
"""


@pytest.mark.rare
def test_devices_that_are_not_there_are_refused():
    lines = output(on_jax("-c", REFUSALS, simulated=2)).splitlines()
    assert len(lines) == 4
    assert [line.partition(":")[0] for line in lines] == [
        "--devices 3",
        "--mesh data=2,model=2",
        "--devices 2",
        "--devices 0",
    ]

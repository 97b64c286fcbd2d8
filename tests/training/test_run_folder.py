"""Finished runs are loaded whole, or refused by name."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_seq.models import BiLSTMConfig
from keras_seq.saving import save_model
from keras_seq.training import (
    CheckpointError,
    load_language_model,
    load_result,
    load_run,
    run_folder,
    trainer,
    write_result,
)
from keras_seq.training.checkpoints import CorruptCheckpointError
from keras_seq.training.run_folder import lock_run, within


@pytest.fixture
def run(finished_run, tmp_path):
    return shutil.copytree(finished_run[0], tmp_path / "logs/lstm-seed0")


def test_the_model_and_the_tokenizer_are_those_of_the_run(run):
    for load in (load_run, load_language_model):
        model, tokenizer = load(run)
        ids = tokenizer.encode("abc\ncab")
        saved = keras.models.load_model(run / "model.keras")
        np.testing.assert_array_equal(model(ids[None]), saved(ids[None]))
        assert tokenizer.decode(ids) == "abc\ncab"


def test_a_folder_that_is_no_run_is_refused_and_one_with_runs_names_them(run):
    with pytest.raises(ValueError, match=r"nowhere does not exist; expected the folder of a finished run\.$"):
        load_run(run / "nowhere")
    with pytest.raises(ValueError, match=rf"model\.keras is a file; expected its folder {run}\.$"):
        load_run(run / "model.keras")
    (run / "new").mkdir()
    with pytest.raises(ValueError, match=r"model\.keras is missing; expected the folder of a finished run\.$"):
        load_run(run / "new")
    shutil.copytree(run, run.with_name("lstm-seed1"))
    with pytest.raises(ValueError, match=rf"finished run, such as {run} or {run.with_name('lstm-seed1')}\.$"):
        load_run(run.parent)


def test_a_run_that_is_not_finished_names_how_to_finish_it(run):
    (run / "model.keras").unlink()
    remedy = f"to go on from the latest checkpoint, --resume {run} with what started the run, .*"
    with pytest.raises(ValueError, match=rf"model\.keras is missing, the run is not finished; .*: {remedy}\.$"):
        load_run(run)


def test_a_model_that_is_not_that_of_the_run_is_refused_with_the_remedy(run):
    (run / "model.keras").write_bytes((run / "model.keras").read_bytes()[:-9])
    with pytest.raises(ValueError, match=f"--resume {run} with what started the run, keras-seq train or an experiment"):
        load_run(run)


def test_a_link_out_of_the_run_is_refused(run, tmp_path):
    shutil.move(run / "model.keras", tmp_path / "model.keras")
    (run / "model.keras").symlink_to(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=r"model\.keras is a link that leads out of"):
        load_run(run)
    assert within(run, run / "tokenizer.json") == run / "tokenizer.json"


def test_a_model_that_predicts_no_next_token_is_a_run_but_no_language_model(run):
    save_model(BiLSTMConfig(num_tags=3, units=4).build_model(9), run / "model.keras")
    write_result(run, {})
    assert load_run(run)[0].output_shape[-1] == 3
    with pytest.raises(ValueError, match="is not a language model"):
        load_language_model(run)


def steps_only(result):
    """Return a result without the seconds of validations, which were repeated."""
    return {name: value for name, value in result.items() if name != "other_seconds"}


class Tokenizer:
    """As much of one as is looked at."""

    vocabulary_size = 3

    def __init__(self, tokens="abc"):
        self.tokens = tokens

    def get_config(self):
        return {"tokens": self.tokens}

    def save(self, path):
        path.write_text(json.dumps(self.get_config()))


@pytest.fixture
def bare_run(tmp_path):
    """A finished bare_run, without checkpoints."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "val_token_losses.npy", np.ones((3, 4), "float32"))
    save_file({"a": np.ones(3, "float32")}, tmp_path / "adapters.safetensors")
    Tokenizer().save(tmp_path / "tokenizer.json")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "tokens": 5, "split": "train"}\n')
    run_folder.write_checksummed(tmp_path / "config.json", {"tokenizer": run_folder.describe_tokenizer(Tokenizer())})
    write_result(tmp_path, {"loss": 1.5, "sample": "é"})
    return tmp_path


def test_the_result_comes_back_without_checksums(bare_run):
    assert load_result(bare_run) == {"loss": 1.5, "sample": "é"}
    assert load_result(bare_run / "nowhere") is None


DAMAGES = {
    "a bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
    "gone": None,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", [*run_folder.FILES, "result.json"])
def test_what_is_corrupt_is_named_and_the_run_goes_on(bare_run, name, damage):
    path = bare_run / name
    data = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(data))
    elif name == "result.json":
        assert load_result(bare_run) is None  # never finished
        return
    with pytest.warns(UserWarning, match=rf"{name} (is|was) .*; it is written again from the last checkpoint\."):
        assert load_result(bare_run) is None
    path.write_bytes(data)
    assert load_result(bare_run) is not None


@pytest.mark.parametrize("text", ["1\n", "{}\n", "\0\0\0\n", '{"step": 1'])
def test_curves_without_a_checkpoint_that_are_no_records_are_refused(bare_run, text):
    with open(bare_run / "metrics.jsonl", "a") as file:
        file.write(text)
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: line 2 is corrupt: .* train this run anew\."):
        load_result(bare_run)


def test_a_model_of_other_weights_is_another(bare_run):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(bare_run / "model.keras")
    with pytest.warns(UserWarning, match=r"model\.keras is corrupt, or was replaced after the run"):
        assert load_result(bare_run) is None


def test_another_tokenizer_is_refused_by_whichever_file_is_there(bare_run):
    run_folder.check_loaded(bare_run, Tokenizer())
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not the tokenizer that the run was trained with"):
        run_folder.check_loaded(bare_run, Tokenizer("abd"))
    (bare_run / "config.json").unlink()
    Tokenizer("abd").save(bare_run / "tokenizer.json")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is corrupt, or was replaced after the run"):
        run_folder.check_loaded(bare_run, Tokenizer("abd"))
    (bare_run / "result.json").unlink()
    run_folder.check_loaded(bare_run, Tokenizer("abd"))  # nothing says otherwise


@pytest.mark.usefixtures("eagerly")
def test_the_lock_is_held_until_everything_is_written(run, finished_run, tiny_run, monkeypatch):
    held, write, whole = [], run_folder.write_result, finished_run[1]
    path = run / "metrics.jsonl"
    text = path.read_text()

    def checked_write(folder, result):
        with pytest.raises(BlockingIOError), lock_run(folder):
            pass
        held.append({path.name for path in folder.iterdir()})
        write(folder, result)

    monkeypatch.setattr(trainer, "write_result", checked_write)
    assert load_result(run) == json.loads(json.dumps(whole))
    for damaged in (f"{text}1\n", text[: len(text) // 2]):
        path.write_text(damaged)
        with pytest.warns(UserWarning, match=r"metrics\.jsonl is corrupt; it is written again"):
            assert load_result(run) is None
    for name in ("model.keras", "val_token_losses.npy", "tokenizer.json", "result.json"):
        (run / name).unlink()
    with pytest.warns(UserWarning, match="are restored from the checkpoint"):
        assert steps_only(tiny_run(run)) == steps_only(whole)
    assert path.read_text() == text
    assert held[0] >= {"model.keras", "val_token_losses.npy", "tokenizer.json", ".pid"}
    assert not (run / ".pid").exists()


VALUE = {"b": (1, 2.5, 1e-300), "a": {"ü": None, "text": "Œ\n"}}


def test_what_is_read_is_what_was_written_as_json_has_it(tmp_path):
    run_folder.write_checksummed(tmp_path / "x.json", VALUE)
    assert run_folder.read_checksummed(tmp_path / "x.json") == json.loads(json.dumps(VALUE))
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")).keys() == {"b", "a", "schema", "checksum"}
    run_folder.write_checksummed(tmp_path / "x.json", {"numbers": [np.float32(0.5), np.int64(2), np.True_]})
    assert run_folder.read_checksummed(tmp_path / "x.json") == {"numbers": [0.5, 2, True]}
    with pytest.raises(TypeError, match=r"PosixPath\('x'\) of type PosixPath cannot be written as JSON"):
        run_folder.write_checksummed(tmp_path / "x.json", {"path": pathlib.PosixPath("x")})


def test_a_key_of_the_users_config_makes_no_hugging_face_folder_of_a_run(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "lstm"}')
    assert run_folder.is_hugging_face(tmp_path)
    (tmp_path / "model.keras").touch()
    assert not run_folder.is_hugging_face(tmp_path)


def test_every_cut_and_every_other_byte_is_noticed_and_the_file_is_named(tmp_path):
    path = tmp_path / "x.json"
    run_folder.write_checksummed(path, VALUE)
    data = path.read_bytes()
    cuts = [data[:length] for length in range(len(data) - 1)]  # but for the last line break
    others = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data) - 1) if data[at] > 32]
    for damaged in [*cuts, *others, bytes(len(data)), b"1", b"[]", b"[" * 100_000, b"\xff"]:
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"x\.json (is corrupt|was changed)"):
            run_folder.read_checksummed(path)


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"a": 1, "seal": "0" * 32}])
def test_a_file_of_keras_seq_0_1_is_refused_in_one_sentence(tmp_path, value):
    (tmp_path / "x.json").write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=r"x\.json has schema=None; expected 2: .* keras_seq 0\.1; use") as error:
        run_folder.read_checksummed(tmp_path / "x.json")
    assert not isinstance(error.value, CorruptCheckpointError)


def test_a_file_of_a_later_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "SCHEMA", 3)
        run_folder.write_checksummed(tmp_path / "x.json", VALUE)
    with pytest.raises(CheckpointError, match="has schema=3; expected 2"):
        run_folder.read_checksummed(tmp_path / "x.json")


HOLDS = """
import filelock, pathlib, sys
lock = filelock.FileLock(sys.argv[1] + "/.lock")
lock.acquire()
pathlib.Path(sys.argv[1] + "/.pid").write_text("4321 on elsewhere")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_one_is_refused_and_names_the_first(tmp_path):
    with (
        lock_run(tmp_path),
        pytest.raises(BlockingIOError, match=rf"process {os.getpid()} on") as refused,
        lock_run(tmp_path),
    ):
        pass
    assert refused.value.filename == str(tmp_path)
    with lock_run(tmp_path):
        pass
    assert not (tmp_path / ".pid").exists()


@pytest.mark.parametrize("name", [".lock", ".pid"])
def test_a_folder_in_the_place_of_the_lock_is_named(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(IsADirectoryError, match="remove it") as refused, lock_run(tmp_path):
        pass
    assert refused.value.filename == str(tmp_path / name)


def test_a_link_in_the_place_of_the_pid_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "precious.txt").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".pid").symlink_to(tmp_path / "precious.txt")
    with lock_run(tmp_path / "run"):
        assert (tmp_path / "run" / ".pid").read_text().startswith(f"{os.getpid()} ")
    assert (tmp_path / "precious.txt").read_text() == "precious"


def test_what_a_killed_process_left_locks_nothing(tmp_path):
    held = subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with held:
        assert held.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError, match="process 4321 on elsewhere"), lock_run(tmp_path):
            pass
        held.kill()
    assert (tmp_path / ".pid").exists()
    with lock_run(tmp_path):
        assert (tmp_path / ".pid").read_text().startswith(f"{os.getpid()} ")


def test_the_lock_ends_with_an_error_inside(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_run(tmp_path):
        raise ZeroDivisionError
    with lock_run(tmp_path):
        pass

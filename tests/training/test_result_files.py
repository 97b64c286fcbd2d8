"""What a finished run holds is what its result.json says, or is written again."""

import json
import shutil

import keras
import numpy as np
import pytest
from ends import points
from safetensors.numpy import save_file

from keras_seq.tracking import event_files
from keras_seq.training import (
    CheckpointError,
    checksummed_json,
    load_result,
    result_files,
    training_run,
    write_result,
)
from keras_seq.training.run_lock import lock_run


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
def run(tmp_path):
    """A finished run, without checkpoints."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "val_token_losses.npy", np.ones((3, 4), "float32"))
    save_file({"a": np.ones(3, "float32")}, tmp_path / "adapters.safetensors")
    Tokenizer().save(tmp_path / "tokenizer.json")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "tokens": 5, "split": "train"}\n')
    checksummed_json.write(tmp_path / "config.json", {"tokenizer": result_files.describe_tokenizer(Tokenizer())})
    write_result(tmp_path, {"loss": 1.5, "sample": "é"})
    return tmp_path


def test_the_result_comes_back_without_checksums(run):
    assert load_result(run) == {"loss": 1.5, "sample": "é"}
    assert load_result(run / "nowhere") is None


DAMAGES = {
    "a bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
    "gone": None,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", [*result_files.FILES, "result.json"])
def test_what_is_corrupt_is_named_and_the_run_goes_on(run, name, damage):
    path = run / name
    data = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(data))
    elif name == "result.json":
        assert load_result(run) is None  # never finished
        return
    with pytest.warns(UserWarning, match=rf"{name} (is|was) .*; it is written again from the last checkpoint\."):
        assert load_result(run) is None
    path.write_bytes(data)
    assert load_result(run) is not None


@pytest.mark.parametrize("text", ["1\n", "[]\n"])
def test_a_result_that_is_no_object_is_reported(run, text):
    (run / "result.json").write_text(text)
    with pytest.warns(UserWarning, match=r"result\.json"):
        assert load_result(run) is None


@pytest.mark.parametrize("text", ["{}\n", '{"loss": 2.5, "sample": "x"}\n'])
def test_a_result_of_keras_seq_0_1_is_refused(run, text):
    (run / "result.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"result\.json has schema=None; expected 2: .*train again"):
        load_result(run)


@pytest.mark.parametrize("text", ["1\n", "{}\n", "\0\0\0\n", '{"step": 1'])
def test_curves_without_a_checkpoint_that_are_no_records_are_refused(run, text):
    with open(run / "metrics.jsonl", "a") as file:
        file.write(text)
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: line 2 is corrupt: .* train this run anew\."):
        load_result(run)


def test_a_model_of_other_weights_is_another(run):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(run / "model.keras")
    with pytest.warns(UserWarning, match=r"model\.keras is corrupt, or was replaced after the run"):
        assert load_result(run) is None


def test_another_tokenizer_is_refused_by_whichever_file_is_there(run):
    result_files.check_loaded(run, Tokenizer())
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not the tokenizer that the run was trained with"):
        result_files.check_loaded(run, Tokenizer("abd"))
    (run / "config.json").unlink()
    Tokenizer("abd").save(run / "tokenizer.json")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is corrupt, or was replaced after the run"):
        result_files.check_loaded(run, Tokenizer("abd"))
    (run / "result.json").unlink()
    result_files.check_loaded(run, Tokenizer("abd"))  # nothing says otherwise


@pytest.mark.usefixtures("eagerly")
def test_the_lock_is_held_until_everything_is_written(tiny_run, tmp_path, monkeypatch):
    held, write = [], result_files.write_result

    def checked_write(folder, result):
        with pytest.raises(BlockingIOError), lock_run(folder):
            pass
        held.append({path.name for path in folder.iterdir()})
        write(folder, result)

    monkeypatch.setattr(training_run, "write_result", checked_write)
    whole = tiny_run(tmp_path / "run")
    assert held[0] >= {"model.keras", "val_token_losses.npy", "tokenizer.json", ".pid"}
    assert not (tmp_path / "run/.pid").exists()
    assert load_result(tmp_path / "run") == json.loads(json.dumps(whole))
    parts = shutil.copytree(tmp_path / "run", tmp_path / "parts")
    path = parts / "metrics.jsonl"
    text = path.read_text()
    path.write_text(f"{text}1\n")
    with pytest.warns(UserWarning, match=r"metrics\.jsonl is corrupt; it is written again from the last checkpoint\."):
        assert load_result(parts) is None
    path.write_text(text[: len(text) // 2])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl is corrupt; it is written again from the last checkpoint\."):
        assert load_result(parts) is None
    with pytest.warns(UserWarning, match="are restored from the checkpoint"):
        assert steps_only(tiny_run(parts)) == steps_only(whole)
    assert path.read_text() == text


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("damage", ["gone", "half", pytest.param("zeros", marks=pytest.mark.rare)])
def test_event_files_of_a_finished_run_that_are_corrupt_or_gone_are_noticed_and_their_curves_written_again(
    tiny_run, finished_run, tmp_path, damage
):
    run, whole = finished_run
    curves = {point[:2] for point in points(run) if "loss" in point[0].lower()}
    parts = shutil.copytree(run, tmp_path / damage)
    [path] = event_files.event_files(parts)
    data = path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(DAMAGES[damage](data))
    with pytest.warns(UserWarning, match=r"tfevents.* is (corrupt|missing); it is written again"):
        assert load_result(parts) is None
    with pytest.warns(UserWarning, match="TensorBoard's event files are corrupt or missing"):
        assert steps_only(tiny_run(parts)) == steps_only(whole)
    assert steps_only(load_result(parts)) == steps_only(json.loads(json.dumps(whole)))
    assert curves <= {point[:2] for point in points(parts)}

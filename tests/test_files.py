import json
import os
import pathlib

import numpy as np
import pytest
import safetensors.numpy

from keras_seq import files
from keras_seq.tokenizers import CharacterTokenizer


def test_the_file_appears_whole_and_alone(tmp_path):
    path = tmp_path / "result.txt"
    with files.atomic_write(path) as temporary:
        assert temporary.parent == path.parent
        assert temporary.suffix == path.suffix  # some writers go by it
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_after_an_error_the_old_file_is_as_it_was_and_nothing_else_is_there(tmp_path):
    path = tmp_path / "result.txt"
    path.write_text("old")

    def fail():
        with files.atomic_write(path) as temporary:
            temporary.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a regular file") as error:
        files.write_text(tmp_path / "pipe", "new")
    assert error.value.filename == str(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_what_lies_under_the_temporary_name_is_not_written_through(tmp_path):
    (tmp_path / "elsewhere").write_text("theirs")
    (tmp_path / f".result.{os.getpid()}.partial.txt").symlink_to("elsewhere")
    files.write_text(tmp_path / "result.txt", "ours")
    assert (tmp_path / "elsewhere").read_text() == "theirs"
    assert (tmp_path / "result.txt").read_text() == "ours"
    assert not (tmp_path / "result.txt").is_symlink()


def test_a_folder_appears_whole_and_alone(tmp_path):
    path = tmp_path / "exported"
    with files.atomic_write(path) as temporary:
        (temporary / "inner").mkdir(parents=True)
        (temporary / "inner" / "file").write_text("new")
        assert not path.exists()
    assert (path / "inner" / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["exported"]


def test_after_an_error_no_half_written_folder_is_there(tmp_path):
    def fail():
        with files.atomic_write(tmp_path / "exported") as temporary:
            temporary.mkdir()
            (temporary / "missing" / "file").write_text("half")

    with pytest.raises(FileNotFoundError) as error:
        fail()
    assert error.value.filename == str(tmp_path / "exported")
    assert os.listdir(tmp_path) == []


def test_an_empty_folder_gets_its_files_and_stays(tmp_path, monkeypatch):
    path, moved, replace = tmp_path / "out", [], os.replace
    path.mkdir()
    number = path.stat().st_ino

    def fail():
        with files.atomic_folder(path) as temporary:
            (temporary / "config.json").touch()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not [*path.iterdir()]
    monkeypatch.setattr(os, "replace", lambda old, new: (moved.append(pathlib.Path(new).name), replace(old, new)))
    with files.atomic_folder(path) as temporary:
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (temporary / name).write_text(name)
        assert not [file for file in path.iterdir() if file != temporary]
    assert moved == [".whole", "tokenizer.json", "model.safetensors", "config.json"]  # without which nothing is loaded
    assert sorted(os.listdir(path)) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert path.stat().st_ino == number


def test_a_path_is_free_for_a_folder_if_nothing_is_there_or_an_empty_one(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert files.is_free(tmp_path / "new")
    assert files.is_free(tmp_path / "empty")
    assert not any(map(files.is_free, (tmp_path, tmp_path / "file", tmp_path / "link")))


def test_a_folder_that_a_killed_process_left_is_removed(tmp_path):
    left = tmp_path / ".exported.4194305.partial"  # no process has such a number
    left.mkdir()
    (left / "file").touch()
    files.remove_partial_files(tmp_path)
    assert os.listdir(tmp_path) == []


def test_json_keeps_every_character_and_no_nan(tmp_path):
    path = tmp_path / "value.json"
    value = {"text": "Œ, 猫\n", "numbers": [1, 2.5, None, True]}
    files.write_json(path, value)
    assert json.loads(path.read_text(encoding="utf-8")) == value
    assert "猫" in path.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(path, {"loss": float("nan")})
    assert json.loads(path.read_text(encoding="utf-8")) == value


def test_a_text_is_written_as_utf_8_with_its_line_ends(tmp_path):
    files.write_text(tmp_path / "text", "a\n\nü\n")
    assert (tmp_path / "text").read_bytes() == "a\n\nü\n".encode()


def test_what_a_kill_before_the_rename_leaves_is_removed_and_nothing_else(tmp_path, monkeypatch):
    left = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda old, new: left.append(pathlib.Path(old)))
        files.write_text(tmp_path / "latest", "x")
        files.write_json(tmp_path / "result.json", {})
        CharacterTokenizer("ab").save(tmp_path / "tokenizer.json")
    assert len(left) == 3
    for path in [*left, tmp_path / "result.json", tmp_path / "tokenizer.json", tmp_path / "mine.part"]:
        path.touch()
    files.remove_partial_files(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["mine.part", "result.json", "tokenizer.json"]


def test_what_another_process_is_writing_stays(tmp_path):
    others, ours = (tmp_path / f".model.{number}.partial.keras" for number in (os.getppid(), os.getpid()))
    for path in (others, ours, tmp_path / ".tokenizer.4194305.partial.json"):  # no process has such a number
        path.touch()
    files.remove_partial_files(tmp_path)
    assert os.listdir(tmp_path) == [others.name]


def test_no_temporary_is_an_event_file_to_tensorboard(tmp_path):
    with files.atomic_write(tmp_path / "events.out.tfevents.1.v2") as temporary:
        assert "tfevents" not in temporary.name
        temporary.touch()
    assert os.listdir(tmp_path) == ["events.out.tfevents.1.v2"]


def test_a_folder_in_the_place_of_a_file_is_named_with_what_to_do(tmp_path):
    writers = {"result.txt": files.write_text, "tokenizer.json": lambda path, text: CharacterTokenizer(text).save(path)}
    for name, write in writers.items():
        (tmp_path / name).mkdir()
        with pytest.raises(IsADirectoryError, match="a folder is where this file has to be written") as error:
            write(tmp_path / name, "ab")
        assert error.value.filename == str(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["result.txt", "tokenizer.json"]


def test_only_a_regular_file_is_one_to_read(tmp_path):
    (tmp_path / "file").write_text("abc")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "link"):
        assert files.check_regular(tmp_path / name).st_size == 3
    for name, reason in {"zero": "regular", "pipe": "regular", "folder": "directory", "none": "No such file"}.items():
        with pytest.raises(OSError, match=reason) as error:
            files.check_regular(tmp_path / name)
        assert error.value.filename == str(tmp_path / name)


def test_what_was_set_aside_before_stays(tmp_path):
    for text in ("first", "second", "third"):
        files.write_text(tmp_path / "events.out.tfevents.1", text)
        clause = files.set_aside(tmp_path / "events.out.tfevents.1")
    assert clause == ", and the old file is kept as events.out.events.1.corrupt-3"
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["first", "second", "third"]


def test_what_the_library_cannot_write_is_an_error_of_the_file(tmp_path, monkeypatch):
    def save_file(arrays, path, metadata):
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    files.write_tensors(tmp_path / "a.safetensors", {"a": np.ones(2)}, {"format": "pt"})
    monkeypatch.setattr(safetensors.numpy, "save_file", save_file)
    with pytest.raises(OSError, match="No space left") as error, files.atomic_write(tmp_path / "b") as temporary:
        files.write_tensors(temporary, {"a": np.ones(2)}, {})
    assert error.value.filename == str(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]

import json
import os

import pytest

from keras_seq.training import replacing, write_json, write_text


def test_the_file_appears_whole_and_alone(tmp_path):
    path = tmp_path / "result.txt"
    with replacing(path) as temporary:
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
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_json_keeps_every_character_and_no_nan(tmp_path):
    path = tmp_path / "value.json"
    value = {"text": "Œ, 猫\n", "numbers": [1, 2.5, None, True]}
    write_json(path, value)
    assert json.loads(path.read_text(encoding="utf-8")) == value
    assert "猫" in path.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"loss": float("nan")})
    assert json.loads(path.read_text(encoding="utf-8")) == value


def test_a_text_is_written_as_utf_8_with_its_line_ends(tmp_path):
    write_text(tmp_path / "text", "a\n\nü\n")
    assert (tmp_path / "text").read_bytes() == "a\n\nü\n".encode()

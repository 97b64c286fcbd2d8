import json

import pytest

from keras_seq.training import CheckpointError, checksummed_json
from keras_seq.training.checkpoints import CorruptCheckpointError

VALUE = {"b": (1, 2.5, 1e-300), "a": {"ü": None, "text": "Œ\n"}}


def test_what_is_read_is_what_was_written_as_json_has_it(tmp_path):
    checksummed_json.write(tmp_path / "x.json", VALUE)
    assert checksummed_json.read(tmp_path / "x.json") == json.loads(json.dumps(VALUE))
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")).keys() == {"b", "a", "schema", "checksum"}


def test_every_cut_and_every_other_byte_is_noticed_and_the_file_is_named(tmp_path):
    path = tmp_path / "x.json"
    checksummed_json.write(path, VALUE)
    data = path.read_bytes()
    cuts = [data[:length] for length in range(len(data) - 1)]  # but for the last line break
    others = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data) - 1) if data[at] > 32]
    for damaged in [*cuts, *others, bytes(len(data)), b"1", b"[]", b"[" * 100_000, b"\xff"]:
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"x\.json (is corrupt|was changed)"):
            checksummed_json.read(path)


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"a": 1, "seal": "0" * 32}])
def test_a_file_of_keras_seq_0_1_is_refused_in_one_sentence(tmp_path, value):
    (tmp_path / "x.json").write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=r"x\.json has schema=None; expected 2: .* keras_seq 0\.1; use") as error:
        checksummed_json.read(tmp_path / "x.json")
    assert not isinstance(error.value, CorruptCheckpointError)


def test_a_file_of_a_later_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checksummed_json, "SCHEMA", 3)
        checksummed_json.write(tmp_path / "x.json", VALUE)
    with pytest.raises(CheckpointError, match="has schema=3; expected 2"):
        checksummed_json.read(tmp_path / "x.json")

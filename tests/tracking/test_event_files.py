import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.util.tensor_util import make_ndarray

from keras_seq import files
from keras_seq.tracking import event_files
from keras_seq.tracking.event_records import EventFile


def write(folder, steps, tag="loss"):
    file = EventFile(folder)
    for step in steps:
        file.write(step, [scalar_pb(tag, float(step))])


def points(folder, tag="loss"):
    found = EventAccumulator(str(folder))
    found.Reload()
    return [(event.step, float(make_ndarray(event.tensor_proto))) for event in found.Tensors(tag)]


def test_points_after_the_checkpoint_go_and_those_before_stay_in_one_file(tmp_path):
    write(tmp_path, [10, 20, 30])
    (first,) = event_files.event_files(tmp_path)
    event_files.truncate_after(tmp_path, 20)
    write(tmp_path, [30, 40])
    assert points(tmp_path) == [(10, 10.0), (20, 20.0), (30, 30.0), (40, 40.0)]
    event_files.truncate_after(tmp_path, 30)
    assert points(tmp_path) == [(10, 10.0), (20, 20.0), (30, 30.0)]
    (kept,) = event_files.event_files(tmp_path)
    assert kept.name < first.name


def test_a_torn_end_is_left_out(tmp_path):
    write(tmp_path, [10, 20, 30])
    (path,) = event_files.event_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    event_files.truncate_after(tmp_path, 100)
    assert points(tmp_path) == [(10, 10.0), (20, 20.0)]


def test_what_a_kill_between_two_files_left_in_both_is_there_once(tmp_path):
    write(tmp_path, [10, 20])
    (path,) = event_files.event_files(tmp_path)
    path.with_name(path.name + ".more").write_bytes(path.read_bytes())
    event_files.truncate_after(tmp_path, 100)
    assert points(tmp_path) == [(10, 10.0), (20, 20.0)]


def test_the_settings_go_as_each_start_writes_them_again(tmp_path):
    write(tmp_path, [10])
    EventFile(tmp_path).write(0, [hparams_pb({"seed": 3}), text_pb("settings", "seed 3")])
    event_files.truncate_after(tmp_path, 100)
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert set(found.summary_metadata) == {"loss"}


def test_nothing_is_left_where_there_is_no_checkpoint(tmp_path):
    write(tmp_path, [0, 10])
    event_files.truncate_after(tmp_path, -1)
    assert event_files.event_files(tmp_path) == []


CURVE = {("loss", step): float(step) for step in (10, 20, 30)}


def sized(folder):
    write(folder, [10, 20, 30])
    return event_files.file_sizes(folder)


DAMAGES = {
    "a bit": lambda data: data[:60] + bytes([data[60] ^ 4]) + data[61:],
    "half": lambda data: data[: len(data) // 2],
    "a torn end": lambda data: data[:-3],
    "zeros": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_the_checkpoint_has_and_is_corrupt_is_reported_and_restored(tmp_path, damage):
    expected_sizes = sized(tmp_path)
    (path,) = event_files.event_files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match=r"event files are corrupt .*metrics\.jsonl; texts.* lost, and .* kept as"):
        event_files.truncate_after(tmp_path, 30, expected_sizes, CURVE)
    assert points(tmp_path) == [(10, 10.0), (20, 20.0), (30, 30.0)]
    (aside,) = tmp_path.glob("*.corrupt")
    assert "tfevents" not in aside.name
    event_files.truncate_after(tmp_path, 30, expected_sizes, CURVE)  # warned once


def test_a_folder_in_the_place_of_an_event_file_is_kept_aside(tmp_path):
    expected_sizes = sized(tmp_path)
    (path,) = event_files.event_files(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.warns(UserWarning, match=r"event files are corrupt or missing; .*, and the old file is kept as"):
        event_files.truncate_after(tmp_path, 30, expected_sizes, CURVE)
    assert points(tmp_path) == [(10, 10.0), (20, 20.0), (30, 30.0)]


def test_that_they_are_missing_is_reported_and_texts_are_called_lost(tmp_path):
    write(tmp_path, [10], tag="sample")
    expected_sizes = event_files.file_sizes(tmp_path)
    for path in event_files.event_files(tmp_path):
        path.unlink()
    with pytest.warns(UserWarning, match=r"missing; the curves from 10 tokens on .*; texts, .* are lost\."):
        event_files.truncate_after(tmp_path, 30, expected_sizes, CURVE)


def test_what_is_torn_after_the_checkpoint_is_dropped_in_silence(tmp_path):
    expected_sizes = sized(tmp_path)
    (path,) = event_files.event_files(tmp_path)
    for more in (b"\1\2\3", bytes(500)):
        whole = path.read_bytes()
        path.write_bytes(whole + more)
        event_files.truncate_after(tmp_path, 30, expected_sizes, CURVE)
        assert points(tmp_path) == [(10, 10.0), (20, 20.0), (30, 30.0)]
        (path,) = event_files.event_files(tmp_path)


def test_a_clock_that_was_set_back_changes_no_order(tmp_path):
    write(tmp_path, [10, 20])
    event_files.truncate_after(tmp_path, 20)
    write(tmp_path, [30])
    (newer,) = (path for path in event_files.event_files(tmp_path) if "0000000000" not in path.name)
    newer.rename(newer.with_name(newer.name.replace(newer.name.split(".")[3], "1000000000")))
    assert points(tmp_path) == [(10, 10.0), (20, 20.0), (30, 30.0)]


def test_a_kill_at_any_write_leaves_nothing_that_tensorboard_reads_twice(tmp_path, monkeypatch):
    expected_sizes = sized(tmp_path)

    class Killed(BaseException):
        pass

    def die(path, new=None, missing_ok=False):
        if new is not None or not path.name.startswith("."):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", die)
        patch.setattr("pathlib.Path.unlink", lambda path, missing_ok=False: None)  # nobody tidies up
        with pytest.raises(Killed):
            event_files.truncate_after(tmp_path, 30, expected_sizes)
    (left,) = {*tmp_path.iterdir()} - {*event_files.event_files(tmp_path)}
    assert "tfevents" not in left.name
    assert files.leftovers(tmp_path) == [left]
    files.remove_leftovers(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", die)  # after the rename
        with pytest.raises(Killed):
            event_files.truncate_after(tmp_path, 30, expected_sizes)
    event_files.truncate_after(tmp_path, 30, expected_sizes)
    assert points(tmp_path) == [(10, 10.0), (20, 20.0), (30, 30.0)]

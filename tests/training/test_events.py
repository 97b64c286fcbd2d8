import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api as hparams

from keras_seq.training import events


def write(folder, steps, tag="loss"):
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in steps:
            tf.summary.scalar(tag, float(step), step=step)
    writer.close()


def points(folder, tag="loss"):
    found = EventAccumulator(str(folder))
    found.Reload()
    return [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in found.Tensors(tag)]


@pytest.mark.parametrize("place", ["", "train", "validation"])
def test_points_after_the_checkpoint_go_and_those_before_stay_in_one_file(tmp_path, place):
    folder = tmp_path / place
    write(folder, [10, 20, 30])
    (first,) = events.files(folder)
    events.take_back(tmp_path, 20)
    write(folder, [30, 40])
    assert points(folder) == [(10, 10.0), (20, 20.0), (30, 30.0), (40, 40.0)]
    events.take_back(tmp_path, 30)
    assert points(folder) == [(10, 10.0), (20, 20.0), (30, 30.0)]
    assert events.files(folder) == [first]


def test_a_torn_end_is_left_out(tmp_path):
    write(tmp_path, [10, 20, 30])
    (path,) = events.files(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    events.take_back(tmp_path, 100)
    assert points(tmp_path) == [(10, 10.0), (20, 20.0)]


def test_what_a_kill_between_two_files_left_in_both_is_there_once(tmp_path):
    write(tmp_path, [10, 20])
    (path,) = events.files(tmp_path)
    path.with_name(path.name + ".more").write_bytes(path.read_bytes())
    events.take_back(tmp_path, 100)
    assert points(tmp_path) == [(10, 10.0), (20, 20.0)]


def test_the_row_of_the_hparams_table_goes_as_each_start_writes_it_again(tmp_path):
    write(tmp_path, [10])
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        hparams.hparams({"seed": 3}, trial_id="x")
    events.take_back(tmp_path, 100)
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert set(found.summary_metadata) == {"loss"}


def test_nothing_is_left_where_nothing_is_vouched_for(tmp_path):
    write(tmp_path, [0, 10])
    events.take_back(tmp_path, -1)
    assert events.files(tmp_path) == []

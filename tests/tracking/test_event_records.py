"""TensorFlow's own reader and writer of records are the reference."""

import os
import resource

import pytest
import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb

from keras_seq.tracking.event_records import EventFile, decode, encode, read_records

EVENTS = [
    Event(wall_time=0.5, file_version="brain.Event:2"),
    Event(),  # of no bytes
    *(Event(wall_time=step, step=step, summary=scalar_pb("loss", 1 / step)) for step in (1, 2**40)),
    Event(summary=text_pb("bytes", bytes(range(256)) * 300)),
]


def test_records_are_those_of_tensorflow(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for event in EVENTS:
            writer.write(event.SerializeToString())
    assert (tmp_path / "theirs").read_bytes() == b"".join(map(encode, EVENTS))
    assert [decode(record) for record in read_records(tmp_path / "theirs")] == EVENTS


def test_a_file_is_read_up_to_the_first_record_that_is_not_intact_as_tensorflow_reads_it(tmp_path):
    whole = b"".join(map(encode, EVENTS[:4]))
    path = tmp_path / "events"
    for n in range(len(whole)):
        for data in (whole[:n], whole[:n] + bytes([whole[n] ^ 16]) + whole[n + 1 :]):
            path.write_bytes(data)
            theirs = []
            try:
                for record in tf.compat.v1.io.tf_record_iterator(str(path)):
                    theirs.append(record)
            except tf.errors.DataLossError:
                pass
            assert [decode(record).SerializeToString() for record in read_records(path)] == theirs, n


def test_what_was_written_is_in_the_file_without_a_close(tmp_path):
    file = EventFile(tmp_path / "new" / "run")
    first, *none = read_records(file.path)
    assert (decode(first).file_version, none) == ("brain.Event:2", [])
    file.write(7, [scalar_pb("loss", 2.0), scalar_pb("val_loss", 3.0)])
    _, *events = map(decode, read_records(file.path))
    assert [(event.step, event.summary) for event in events] == [
        (7, scalar_pb("loss", 2.0)),
        (7, scalar_pb("val_loss", 3.0)),
    ]


def test_no_two_files_have_one_name_and_all_follow_truncated_ones(tmp_path):
    paths = {EventFile(tmp_path).path for _ in range(3)}
    assert {*tmp_path.iterdir()} == paths
    assert all(path.name > "events.out.tfevents.0000000000.999.999" for path in paths)
    assert all(f".{os.getpid()}." in path.name for path in paths)


def test_a_file_that_may_not_grow_is_an_error_that_names_it(tmp_path):
    file = EventFile(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as fault:
            file.write(1, [scalar_pb("loss", n) for n in range(100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert fault.value.filename == str(file.path)
    assert 1 < len(read_records(file.path)) < 100  # the others are intact

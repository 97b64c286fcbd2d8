"""TensorBoard's event files, taken back to what a checkpoint vouches for.

    events after the checkpoint's tokens, twice written ones, a torn last one     left out
    all others                                                                    one file in their folder

So a run that was killed and goes on has every point once. A file is a row of records `[length, crc, event, crc]`.
"""

import pathlib

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event

from keras_seq.training.files import replacing

SESSION = "_hparams_/session_start_info"  # written again at each start


def files(folder) -> list[pathlib.Path]:
    """The event files of a folder, oldest first."""
    return sorted(pathlib.Path(folder).glob("events.out.tfevents.*"))


def records(path) -> list[bytes]:
    """The whole events of a file, as bytes; what follows a damaged or torn one is left out."""
    found = []
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            found.append(record)
    except tf.errors.DataLossError:
        pass
    return found


def tags(folder) -> set[str]:
    """What the event files of a folder hold values of."""
    held = (Event.FromString(record) for path in files(folder) for record in records(path))
    return {value.tag for event in held for value in event.summary.value}


def take_back(folder, tokens):
    """Leaves the events up to `tokens` in a run's folder and in those for training and validation."""
    folder = pathlib.Path(folder)
    for place in (folder, folder / "train", folder / "validation"):
        _take_back(files(place), tokens)


def _take_back(paths, tokens):
    kept = {}
    for path in paths:
        for record in records(path):
            event = Event.FromString(record)
            if event.summary.value and event.step <= tokens and event.summary.value[0].tag != SESSION:
                kept[record] = None  # an event that a kill between two files left in both is there once
    if kept:
        head = Event(wall_time=Event.FromString(next(iter(kept))).wall_time, file_version="brain.Event:2")
        with replacing(paths[0]) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
            for record in [head.SerializeToString(), *kept]:
                writer.write(record)
        paths = paths[1:]
    for path in paths:
        path.unlink()

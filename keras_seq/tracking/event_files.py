"""TensorBoard's event files, taken back to what a checkpoint vouches for.

    events after the checkpoint's tokens, twice written ones, a torn last one     left out
    all others                                   one file in their folder: events.out.tfevents.0000000000.TOKENS.BYTES

So a run that was killed and goes on has every point once, and in order whatever the clock says: that name comes before
any with a time. A file is a row of records `[length, crc, event, crc]`. A checkpoint knows how long the files were; one
of which less can be read is damaged: it is kept under another name, the curves in it are written again from
metrics.jsonl, and what cannot be is told.
"""

import pathlib
import re
import warnings

import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from keras_seq.atomic_files import atomic_write, set_aside

SESSION = "_hparams_/session_start_info"  # written again at each start
KEPT = "events.out.tfevents.0000000000.{tokens}.{size}"
ANY_KEPT = re.compile(r"events\.out\.tfevents\.0{10}\.\d+\.(\d+)")
FRAME = 16  # bytes around a record
PLACES = ("", "train", "validation")
LOST = "texts, pictures and histograms of those tokens are lost"


def event_files(folder) -> list[pathlib.Path]:
    """The event files of a folder, oldest first."""
    return sorted(path for path in pathlib.Path(folder).glob("events.out.tfevents.*") if path.is_file())


def sizes(run) -> dict[str, int]:
    """How long the event files in the folder of a run are, and in those for training and validation."""
    paths = [path for place in PLACES for path in event_files(pathlib.Path(run) / place)]
    return {path.relative_to(run).as_posix(): path.stat().st_size for path in paths}


def read_records(path) -> list[bytes]:
    """The whole events of a file, as bytes; what follows a damaged or torn one is left out."""
    found = []
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            found.append(record)
    except tf.errors.DataLossError:
        pass
    return found


def readable(path) -> int:
    """How many bytes of a file are whole events, from its beginning; 0 where there is no such file."""
    return sum(len(record) + FRAME for record in read_records(path)) if path.is_file() else 0


def damaged(run, vouched) -> list[pathlib.Path]:
    """The event files of a run of which less can be read than was there at its last checkpoint.

    Args:
        run: the folder.
        vouched: how long the files were then, as `sizes` gives it.
    """
    run, found = pathlib.Path(run), []
    expected = {run / name: size for name, size in vouched.items()}
    for place in PLACES:
        here = {path: size for path, size in expected.items() if path.parent == run / place}
        taken_back = {
            path: int(match[1]) for path in event_files(run / place) if (match := ANY_KEPT.fullmatch(path.name))
        }
        later = {path: size for path, size in taken_back.items() if path not in here}  # done after the checkpoint
        found += [path for path, size in (later or here).items() if readable(path) < size]
    return found


def tags(folder) -> set[str]:
    """What the event files of a folder hold values of."""
    held = (Event.FromString(record) for path in event_files(folder) for record in read_records(path))
    return {value.tag for event in held for value in event.summary.value}


def truncate_after(folder, tokens, vouched=None, curves=None):
    """Leaves the events up to `tokens` in a run's folder and in those for training and validation.

    Args:
        folder: of the run.
        tokens: those of the checkpoint.
        vouched: how long the files were then, as `sizes` gives it.
        curves: by folder ("", "train", "validation"), the points `{(tag, tokens): value}` that have to be there.
    """
    folder, vouched, curves = pathlib.Path(folder), vouched or {}, curves or {}
    for place in PLACES:
        here = {folder / name: size for name, size in vouched.items() if (folder / name).parent == folder / place}
        _truncate_files(folder / place, tokens, here, curves.get(place, {}))


def _truncate_files(folder, tokens, vouched, points):
    paths, kept, whole = event_files(folder), {}, {}
    for path in paths:
        found = read_records(path)
        whole[path] = sum(len(record) + FRAME for record in found)
        for record in found:
            event = Event.FromString(record)
            if event.summary.value and event.step <= tokens and event.summary.value[0].tag != SESSION:
                kept[record] = event  # an event that a kill between two files left in both is there once
    ours = re.compile(re.escape(KEPT.format(tokens=tokens, size="SIZE")).replace("SIZE", r"(\d+)"))
    again = {path: int(match[1]) for path in paths if (match := ours.fullmatch(path.name))}
    expected = again or vouched  # a kill came after this was done, and before the next checkpoint
    damaged = [path for path, size in expected.items() if whole.get(path, 0) < size]
    if damaged:
        kept = _mended(folder, kept, points, sorted(damaged))
    if kept:
        head = Event(wall_time=next(iter(kept.values())).wall_time, file_version="brain.Event:2")
        lines = [head.SerializeToString(), *kept]
        name = KEPT.format(tokens=tokens, size=sum(len(line) + FRAME for line in lines))
        with atomic_write(folder / name) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
            for line in lines:
                writer.write(line)
        paths = [path for path in paths if path.name != name]
    for path in paths:
        path.unlink(missing_ok=True)


def _mended(folder, kept, points, damaged):
    """The events with the points that are missing among them; the damaged files are kept aside."""
    there = {(value.tag, event.step) for event in kept.values() for value in event.summary.value}
    missing = {point: value for point, value in points.items() if point not in there}
    time = max((event.wall_time for event in kept.values()), default=0.0)
    new = [Event(wall_time=time, step=at, summary=scalar_pb(tag, value)) for (tag, at), value in missing.items()]
    events = sorted([*kept.values(), *new], key=lambda event: event.step)
    lost = f"; {LOST}" if folder.name not in PLACES else ""
    since = f" from {min(at for _, at in missing):,} tokens on" if missing else ""
    aside = "".join(set_aside(path) for path in damaged)
    warnings.warn(
        f"{folder}: TensorBoard's events are damaged or gone; the curves{since} are written again from metrics.jsonl"
        f"{lost}{aside}.",
        stacklevel=2,
    )
    return {event.SerializeToString(): event for event in events}

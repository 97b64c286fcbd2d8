"""Truncate TensorBoard event files to a checkpoint's step, so that a resumed run logs each point once.

    events after the checkpoint's tokens, duplicates,
    a truncated last event, the run's settings            dropped; each start writes the settings again,
    and its result                                        each end the result
    all others                                            merged into events.out.tfevents.0000000000.TOKENS.BYTES

That name sorts before any with a time, so a resumed run has every point once and in order, whatever the clock says. A
checkpoint stores the sizes of the files; one of which less can be read is corrupt: it is renamed to `*.corrupt`, its
curves are restored from metrics.jsonl, and a warning names what is lost.
"""

import pathlib
import re
import warnings

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from keras_seq.files import set_aside, write_bytes
from keras_seq.tracking.event_records import FILE_VERSION, decode, encode, read_records
from keras_seq.tracking.layout import RESULT, SETTINGS

START_TAGS = {"_hparams_/session_start_info", SETTINGS}  # written again at each start
TRUNCATED_NAME = "events.out.tfevents.0000000000.{tokens}.{size}"
TRUNCATED_PATTERN = re.compile(r"events\.out\.tfevents\.0{10}\.\d+\.(\d+)")


def event_files(folder: str | pathlib.Path) -> list[pathlib.Path]:
    """Return the paths of the event files in a folder, oldest first."""
    return sorted(path for path in pathlib.Path(folder).glob("events.out.tfevents.*") if path.is_file())


def file_sizes(run: str | pathlib.Path) -> dict[str, int]:
    """Return the sizes in bytes of a run's event files by name."""
    return {path.name: path.stat().st_size for path in event_files(run)}


def readable_bytes(path: pathlib.Path) -> int:
    """Return the size of the intact events at the beginning of a file; 0 if it is missing."""
    return sum(map(len, read_records(path))) if path.is_file() else 0


def corrupt_files(run: str | pathlib.Path, expected_sizes: dict[str, int]) -> list[pathlib.Path]:
    """Return the event files of a run of which less can be read than existed at its last checkpoint."""
    expected = {pathlib.Path(run) / name: size for name, size in expected_sizes.items()}
    truncated = {path: int(match[1]) for path in event_files(run) if (match := TRUNCATED_PATTERN.fullmatch(path.name))}
    later = {path: size for path, size in truncated.items() if path not in expected}  # truncated after the checkpoint
    return [path for path, size in (later or expected).items() if readable_bytes(path) < size]


def truncate_after(
    folder: str | pathlib.Path,
    tokens: int,
    expected_sizes: dict[str, int] | None = None,
    curves: dict[tuple[str, int], float] | None = None,
):
    """Drop the events after `tokens` from a run's event files."""
    folder, paths, events, readable = pathlib.Path(folder), event_files(folder), {}, {}
    for path in paths:
        records = read_records(path)
        readable[path] = sum(map(len, records))
        for record in records:
            event = decode(record)
            if event.summary.value and event.step <= tokens and not _is_written_again(event.summary.value[0].tag):
                events[record] = event  # keyed by content: a kill between two files leaves an event in both
    pattern = re.compile(re.escape(TRUNCATED_NAME.format(tokens=tokens, size="SIZE")).replace("SIZE", r"(\d+)"))
    truncated = {path: int(match[1]) for path in paths if (match := pattern.fullmatch(path.name))}
    # where there are truncated files, a kill came after the truncation and before the next checkpoint
    expected = truncated or {folder / name: size for name, size in (expected_sizes or {}).items()}
    corrupt = [path for path, size in expected.items() if readable.get(path, 0) < size]
    if corrupt:
        events = _restored(folder, events, curves or {}, sorted(corrupt))
    if events:
        header = Event(wall_time=next(iter(events.values())).wall_time, file_version=FILE_VERSION)
        data = b"".join([encode(header), *events])
        name = TRUNCATED_NAME.format(tokens=tokens, size=len(data))
        write_bytes(folder / name, data)
        paths = [path for path in paths if path.name != name]
    for path in paths:
        path.unlink(missing_ok=True)


def _is_written_again(tag):
    """Return whether an event is written at each start of a run, or at its end, which a resumed run moves."""
    return tag in START_TAGS or tag.startswith(f"{RESULT}/")


def _restored(folder, events, points, corrupt):
    """Return the events with the missing points added; rename the corrupt files and warn."""
    present = {(value.tag, event.step) for event in events.values() for value in event.summary.value}
    missing = {point: value for point, value in points.items() if point not in present}
    time = max((event.wall_time for event in events.values()), default=0.0)
    restored = [
        Event(wall_time=time, step=step, summary=scalar_pb(tag, value)) for (tag, step), value in missing.items()
    ]
    merged = sorted([*events.values(), *restored], key=lambda event: event.step)
    since = f" from {min(step for _, step in missing):,} tokens on" if missing else ""
    aside = "".join(set_aside(path) for path in corrupt)
    warnings.warn(
        f"{folder}: TensorBoard's event files are corrupt or missing; the curves{since} are restored from "
        f"metrics.jsonl; texts, images and histograms of those tokens are lost{aside}.",
        stacklevel=2,
    )
    return {encode(event): event for event in merged}

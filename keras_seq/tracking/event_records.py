"""Read and append the records of TensorBoard's event files, without TensorFlow.

    record     length (uint64), masked CRC-32C of the length (uint32), event, masked CRC-32C of the event (uint32)

The `tensorboard` package's own writer hands events to a thread, which meets a full disk later than the call that caused
it, and imports TensorFlow wherever that is installed; only its checksum is used here.
"""

import itertools
import os
import pathlib
import platform
import struct
import time
from collections.abc import Iterable

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

FILE_VERSION = "brain.Event:2"  # of the first event of a file
HEADER, FOOTER = 12, 4  # bytes before and after an event
_file_numbers = itertools.count()  # within this process


def encode(event: Event) -> bytes:
    """Return the record of an event."""
    return _frame(event.SerializeToString())


def decode(record: bytes) -> Event:
    """Return the event of an intact record."""
    return Event.FromString(record[HEADER:-FOOTER])


def read_records(path: str | pathlib.Path) -> list[bytes]:
    """Return the records of a file, up to the first corrupt or truncated one."""
    data, start, records = pathlib.Path(path).read_bytes(), 0, []
    while start + HEADER + FOOTER <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        record = data[start : start + HEADER + length + FOOTER]
        if record != _frame(record[HEADER : HEADER + length]):
            break
        records.append(record)
        start += len(record)
    return records


def _frame(data):
    parts = (struct.pack("<Q", len(data)), data)
    return b"".join(part + struct.pack("<I", masked_crc32c(part)) for part in parts)


class EventFile:
    """Append summaries to a new event file, which is open only while they are written: none waits in a buffer."""

    def __init__(self, folder: str | pathlib.Path):
        name = f"{int(time.time()):010}.{platform.node()}.{os.getpid()}.{next(_file_numbers)}"
        self.path = pathlib.Path(folder, f"events.out.tfevents.{name}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._append([Event(wall_time=time.time(), file_version=FILE_VERSION)])

    def write(self, step: int, summaries: Iterable[Summary]):
        """Append an event for each summary, at a position on the axis."""
        self._append(Event(wall_time=time.time(), step=step, summary=summary) for summary in summaries)

    def _append(self, events):
        data = b"".join(map(encode, events))
        try:
            with open(self.path, "ab") as file:
                file.write(data)
        except OSError as error:  # that of a full disk names no file
            raise type(error)(error.errno, error.strerror, str(self.path)) from error

"""What two runs have to have in common at their end to be the same run, read without TensorFlow."""

import json
import re
import struct

from safetensors.numpy import load_file
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from keras_seq.training.run_config import flatten

CLOCKS = {"tokens_per_second", "seconds", "other_seconds", "train_seconds", "checksum"}  # the checksum is also of those
CLOCK_TAGS = {"Training/tokens_per_second", "Training/seconds"}
START_TAGS = {"_hparams_/session_start_info", "settings"}  # written at each start
EVENTS = re.compile(r"events\.out\.tfevents\.")  # of which there may be more after a stop


def events(path):
    """The events of a file, up to one that a kill tore."""
    data, at = path.read_bytes(), 0
    while at + 16 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 16 + length > len(data):
            return
        yield Event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length


def points(folder):
    """All that TensorBoard shows but for clocks, read without TensorFlow: a start drops what earlier files have later.

    A point at the step of an earlier one of its curve replaces it. tests/tracking/test_resumed_events.py asks
    TensorBoard itself.
    """
    found = {}
    for path in sorted(folder.glob("*tfevents*")):  # hidden ones too: TensorBoard reads all
        for event in events(path):
            if event.session_log.status == SessionLog.START:
                found = {point: value for point, value in found.items() if point[1] < event.step}
            for value in event.summary.value:
                if value.tag not in CLOCK_TAGS | START_TAGS:
                    found[value.tag, event.step] = str(value.tensor)
    return [(*point, value) for point, value in found.items()]


def differences(got, expected):
    """The parts in which one `end` is not another."""
    return [part for part in expected if got[part] != expected[part]]


def end(folder):
    """What has to be equal."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    numbers = {}
    for path in sorted((folder / "checkpoints").glob("*.safetensors")):
        numbers |= {f"{path.name}/{name}": value.tobytes() for name, value in load_file(path).items()}
    return {
        "metrics": [{name: value for name, value in line.items() if name not in CLOCKS} for line in lines],
        "result": {name: value for name, value in flatten(result).items() if name.split(".")[0] not in CLOCKS},
        "checkpoints": numbers,
        "TensorBoard": points(folder),
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not EVENTS.match(path.name)),
    }

"""Options of a process, not of its runs: how many jobs, devices and machines share the work.

They are not in config.json: a run goes on with any others.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import tyro

from experiments.frame.option_checks import check_effects
from experiments.frame.option_help import groups_not_chosen
from experiments.frame.startup import command_line
from keras_seq.tracking.tracker import import_tracker
from keras_seq.training import devices, processes
from keras_seq.training.environment import versions
from keras_seq.training.resume_check import flatten

MAX_JOBS = 256
WORDS = {"--jobs": 1, "--devices": 1, "--mesh": 1, "--shard-weights": 0}  # the words after each option


@dataclasses.dataclass(frozen=True)
class Machine:
    """Share the work among jobs, devices and machines."""

    jobs: int | None = None
    """Train this many runs at a time, each in a process with its share of the cores and GPUs. The same command with
    --resume FOLDER takes part from any machine that shares the folder."""
    devices: str | None = None
    """Devices that train each model together, a number or all; on JAX only. They divide the batch."""
    mesh: str | None = None
    """Divide Transformers too: data=2,model=2 are 2 x 2 devices."""
    shard_weights: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Divide weights and optimizer state among the devices along data, instead of copying them."""

    def __post_init__(self):
        if self.jobs is not None and not 1 <= self.jobs <= MAX_JOBS:
            raise ValueError(f"--jobs {self.jobs}: expected a number of processes from 1 to {MAX_JOBS}.")
        if self.devices is not None and self.devices != "all" and not self.devices.isdecimal():
            raise ValueError(f"--devices {self.devices}: expected a number of devices, or all.")
        if self.jobs is not None and (self.devices or self.mesh):
            raise ValueError(f"--jobs {self.jobs}: expected it without --devices and --mesh, which use all devices.")

    def use_devices(self) -> None:
        """Use the devices and processes from now on; raise a ValueError as `keras_seq.training.devices` does."""
        number = int(self.devices) if self.devices is not None and self.devices != "all" else self.devices
        devices.use_devices(number, self.mesh, self.shard_weights)

    def check(self, config: Any, arguments: Sequence[str]) -> None:
        """Check that the devices and packages fit the options of an experiment, which are those of all processes.

        Args:
            config: Options of the experiment.
            arguments: Its command line, which says whose options count.

        Raises:
            ValueError: They do not, or an option has no effect.
        """
        if processes.count() > 1:
            processes.check_equal({**flatten(dataclasses.asdict(config)), **versions()})
            if getattr(config, "match", None) == "seconds":
                raise ValueError("--match seconds: expected one process, because each measures other times.")
        if hasattr(config, "train"):
            import_tracker(config.train.tracker)
        check_effects(config, arguments)
        hidden = groups_not_chosen(config, arguments)
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            if field.name == "batch_size":
                devices.check_rows("--batch-size", value)
            elif dataclasses.is_dataclass(value) and field.name not in hidden:
                devices.check_model(field.name.replace("_", "-"), value)


def split_options(arguments: Sequence[str], script: str, description: str) -> tuple[Machine, list[str]]:
    """Return the options of the process, and the words of the command line that are the experiment's."""
    own, others, words = [], [], iter(arguments)
    for word in words:
        name, equals, _ = word.replace("_", "-").partition("=")
        if name in WORDS:
            own += [word, *([next(words, "")] if WORDS[name] and not equals else [])]
        else:
            others.append(word)
    return command_line(Machine, script, description, own), others


@contextlib.contextmanager
def first_process_speaks() -> Iterator[None]:
    """Drop what the other processes of a training print."""
    if processes.is_first():
        yield
        return
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        yield

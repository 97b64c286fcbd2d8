"""The command of an experiment: parse its options, start or resume its runs, report, and end with a sentence."""

import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import tyro

from experiments.common import jobs
from keras_seq import training
from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import check_effects, command_line, groups_not_chosen, replaced
from keras_seq.reports import plots
from keras_seq.reports.tables import Report
from keras_seq.runs import folders
from keras_seq.tracking.tracker import import_tracker
from keras_seq.training import distributed
from keras_seq.training.run_config import flatten, versions

MAX_JOBS = 256
WORDS = {"--jobs": 1, "--devices": 1, "--mesh": 1, "--shard-weights": 0}  # the words after each option of the process


@dataclasses.dataclass(frozen=True)
class Machine:
    """Share the work among jobs, devices and machines: options of a process, which are not in config.json."""

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
        """Use the devices and processes from now on; raise a ValueError as `keras_seq.training.distributed` does."""
        number = int(self.devices) if self.devices is not None and self.devices != "all" else self.devices
        distributed.use_devices(number, self.mesh, self.shard_weights)

    def check(self, config: Any, arguments: Sequence[str]) -> None:
        """Raise a ValueError unless devices and packages fit the options, and each word of the command line counts."""
        if distributed.count() > 1:
            distributed.check_equal({**flatten(dataclasses.asdict(config)), **versions()})
            if getattr(config, "match", None) == "seconds":
                raise ValueError("--match seconds: expected one process, because each measures other times.")
        if hasattr(config, "train"):
            import_tracker(config.train.tracker)
        check_effects(config, arguments)
        hidden = groups_not_chosen(config, arguments)
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            if field.name == "batch_size":
                distributed.check_rows("--batch-size", value)
            elif dataclasses.is_dataclass(value) and field.name not in hidden:
                distributed.check_model(field.name.replace("_", "-"), value)


def split_options(arguments: Sequence[str], script: str) -> tuple[Machine, list[str]]:
    """Return the options of the process, and the words of the command line that are the experiment's."""
    own, others, words = [], [], iter(arguments)
    for word in words:
        name, equals, _ = word.replace("_", "-").partition("=")
        if name in WORDS:
            own += [word, *([next(words, "")] if WORDS[name] and not equals else [])]
        else:
            others.append(word)
    return command_line(Machine, script, "", own), others


def experiment_main(
    name: str, settings_class: type, smoke: dict, experiment: Callable[[Any, pathlib.Path], Report | str], doc: str
) -> Callable:
    """Return the `main` of an experiment.

    Args:
        name: Name of the experiment, as in `python -m experiments.NAME`.
        settings_class: Frozen dataclass of its options, with `log_dir`, `resume` and `smoke`.
        smoke: Changes of the settings for `--smoke` (`options.replaced`).
        experiment: Function from the settings and the folder of the runs to the `Report`, or to a text to print.
        doc: Docstring of the script, for --help.
    """
    script = f"experiments.{name}"

    @exit_with_message(script)
    def main(arguments: Sequence[str] | None = None):
        """Run the command line; the exit status is 1 if the report names failures."""
        machine, words = split_options(sys.argv[1:] if arguments is None else arguments, script)
        run = start_or_resume(settings_class, name, doc, words, smoke, machine)
        with training.noticing_loss(), plots.style(), run as (settings, folder):
            if machine.jobs is not None:
                jobs.run_workers(script, folder, machine.jobs)
            report = experiment(settings, folder)
            if jobs.is_worker():
                return
            if isinstance(report, str):
                print(report)
                return
            report.write(folder, name)
            print(report.message(folder))
            if report.failures:
                print("\n".join(report.failures), file=sys.stderr)
                sys.exit(1)

    main.settings_class, main.smoke = settings_class, smoke
    return main


@contextlib.contextmanager
def start_or_resume(
    config_class: type, experiment: str, doc: str, arguments: Sequence[str], smoke: dict, machine: Machine
) -> Iterator[tuple[Any, pathlib.Path]]:
    """Parse the command line, yield the config and the folder of the runs, and lock that folder until the end."""
    is_shared = machine.jobs is not None or jobs.is_worker()
    script = f"experiments.{experiment}"
    if (folder := jobs.folder_to_resume(arguments)) is not None:
        machine.use_devices()
        with (
            first_process_speaks(),
            distributed.private_folder(folder) as folder,
            folders.own_folder(folder, is_shared),
        ):
            if not is_shared:
                jobs.remove_all_leftovers(folder)
            saved = jobs.load_config(folder, config_class)
            config = command_line(config_class, script, doc, arguments, saved, Machine)
            machine.check(config, arguments)
            with jobs.changed_options(folder, saved, config) as config:
                yield config, folder
        return
    config = command_line(config_class, script, doc, arguments, further=Machine)
    if config.smoke:  # tiny sizes of what is not given
        config = command_line(config_class, script, doc, arguments, replaced(config_class(), smoke))
    parent = pathlib.Path(config.log_dir) / experiment
    nearest = next(path for path in (parent, *parent.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise ValueError(f"--log-dir {config.log_dir}: {nearest} is not a folder; expected a folder or an unused name.")
    machine.use_devices()
    machine.check(config, arguments)
    new_folder = contextlib.nullcontext(parent / "new")
    if distributed.is_first():
        new_folder = folders.timestamped_folder(parent, folders.corpus_label(getattr(config, "corpus", None)))
    with (
        first_process_speaks(),
        new_folder as folder,
        distributed.private_folder(folder) as folder,
        folders.own_folder(folder, is_shared),
    ):
        if is_shared:
            jobs.write_settings(folder, config)
        yield config, folder


@contextlib.contextmanager
def first_process_speaks() -> Iterator[None]:
    """Drop what the other processes of a training print."""
    if distributed.is_first():
        yield
        return
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        yield

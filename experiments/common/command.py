"""The command of an experiment: parse its options, start or resume its runs, report, and end with a sentence.

exit status   0 done    1 failures, or diverged training    2 a mistake of the user, named in one sentence
130 Ctrl-C    143 SIGTERM    129 SIGHUP: the terminal was closed    141 SIGPIPE: nobody reads the output
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NoReturn

import tyro

from experiments.common import runs
from experiments.common.options import check_effects, command_line, groups_not_chosen, replaced
from experiments.common.reports import Report, python_command
from experiments.common.start import filtered_stderr
from keras_seq import training
from keras_seq.files import OUTPUT_CLOSED, guard_output, signal_handler
from keras_seq.tracking.tracker import import_tracker
from keras_seq.training import distributed
from keras_seq.training.run_config import flatten, versions

# a ValueError of theirs is a bug: our checks find mistakes
LIBRARIES = {"jax", "keras", "numpy", "tensorflow", "torch"}
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
        if self.devices is not None and self.devices != "all" and not self.distributed.isdecimal():
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
        with training.noticing_loss(), run as (settings, folder):
            if machine.jobs is not None:
                runs.run_workers(script, folder, machine.jobs)
            report = experiment(settings, folder)
            if runs.is_worker():
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
    is_shared = machine.jobs is not None or runs.is_worker()
    script = f"experiments.{experiment}"
    if (folder := runs.folder_to_resume(arguments)) is not None:
        machine.use_devices()
        with first_process_speaks(), distributed.private_folder(folder) as folder, runs.own_folder(folder, is_shared):
            if not is_shared:
                runs.remove_all_leftovers(folder)
            saved = runs.load_config(folder, config_class)
            config = command_line(config_class, script, doc, arguments, saved, Machine)
            machine.check(config, arguments)
            yield runs.apply_changes(folder, saved, config), folder
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
        new_folder = runs.timestamped_folder(parent, runs.corpus_label(config))
    with (
        first_process_speaks(),
        new_folder as folder,
        distributed.private_folder(folder) as folder,
        runs.own_folder(folder, is_shared),
    ):
        if is_shared:
            runs.write_settings(folder, config)
        yield config, folder


@contextlib.contextmanager
def first_process_speaks() -> Iterator[None]:
    """Drop what the other processes of a training print."""
    if distributed.is_first():
        yield
        return
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        yield


@contextlib.contextmanager
def exit_with_message(script: str, use_devices: bool = True) -> Iterator[None]:
    """Turn exceptions caused by the user into one line on stderr and an exit status.

    ValueError, OSError and memory errors exit with status 2, diverged training with 1, and a requested stop with
    128 + the signal's number. Other exceptions keep their traceback, and so does a ValueError raised by one of
    `LIBRARIES`. The parent of worker processes leaves the devices to them (`use_devices`).
    """
    try:
        if use_devices and (tf := sys.modules.get("tensorflow")) is not None:
            with filtered_stderr():
                tf.config.list_logical_devices()  # now, since finding them prints start-up messages
        with raise_on_stop_request():
            yield
    except KeyboardInterrupt as stop:
        exit_interrupted(script, stop)
    except Exception as error:
        message, status = _describe(error)
        if message is None:
            raise
        print(f"{script}: {message}", file=sys.stderr, flush=True)
        if distributed.count() > 1:
            distributed.exit_soon(status, 0 if isinstance(error, distributed.LostProcess) else 5)
        sys.exit(status)


def _describe(error):
    """Return the sentence that tells the user of an error, and the exit status; None for the sentence of a bug."""
    tensorflow = sys.modules.get("tensorflow")
    if isinstance(error, MemoryError) or (tensorflow and isinstance(error, tensorflow.errors.ResourceExhaustedError)):
        reason = str(error).splitlines()[0] if str(error) else "allocation failed"
        return f"out of memory ({reason:.200}): choose smaller sizes.", 2
    if isinstance(error, training.TrainingDiverged | training.LostProcess):
        return str(error), 1
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}.", 2
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    in_library = frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES
    if isinstance(error, OSError) or (isinstance(error, ValueError) and not in_library):
        return f"{' '.join(str(error).split()).rstrip('.')}.", 2
    return None, None


@contextlib.contextmanager
def raise_on_stop_request() -> Iterator[None]:
    """Raise `KeyboardInterrupt(signal number)` in the block when a signal asks for a stop, or output cannot be written.

    If there are run folders, the latter waits until the next training has stopped with a checkpoint, or until the end
    of the block.
    """

    def stop(number, frame=None):
        raise KeyboardInterrupt(number)

    def output_error(error):
        if not runs.run_folders:
            stop(OUTPUT_CLOSED)

    del runs.run_folders[:]
    with signal_handler(stop), guard_output(output_error):
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
            if sys.stdout.error is not None:
                stop(OUTPUT_CLOSED)


def exit_interrupted(script: str, stop: KeyboardInterrupt) -> NoReturn:
    """Print where the checkpoint is and how to resume, as far as the streams can be written, and exit."""
    if not distributed.is_first():  # the first process of the training says it
        sys.exit(128 + getattr(stop, "signal_number", next(iter(stop.args), signal.SIGINT)))
    if isinstance(stop, training.TrainingInterrupted):
        message, number, folder = f"\nStopped. A checkpoint is in {stop.path}", stop.signal_number, stop.path.parents[2]
    else:
        message, number = "\nStopped.", next(iter(stop.args), signal.SIGINT)
        folder = next((folder for folder in runs.run_folders if any(folder.glob("*/config.json"))), None)
    with contextlib.suppress(OSError):  # the terminal, or the reader of `2>&1 | tee log`, may be gone
        if folder is not None or number != OUTPUT_CLOSED:  # `experiments.generate RUN | head` ends silently
            print(message, file=sys.stderr)
        if folder is not None:
            print(f"To resume: {python_command('-m', script, '--resume', folder)}", file=sys.stderr)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:  # discard what cannot be written, since flushing it at exit would be an error
            with open(os.devnull, "wb") as null_device:
                os.dup2(null_device.fileno(), stream.fileno())
    sys.exit(128 + number)

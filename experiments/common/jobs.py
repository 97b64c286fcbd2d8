"""The runs of an experiment: their folders, what may change on resume, and the processes that share them.

    LOG_DIR/EXPERIMENT/UTC-TIME-CORPUS/RUN/config.json    {"schema": 2, "experiment": config of the command line, ...}
    LOG_DIR/EXPERIMENT/UTC-TIME-CORPUS/.claims/RUN.lock   held by the job that trains the run

`--resume FOLDER` reads the config from there and continues the unfinished runs. Options beside it may make runs longer,
the finished ones too, add runs (ADDS_RUNS), or change the logging, validation and checkpoint intervals. One process at
a time has the folder, unless the command has `--jobs N`: it starts N workers, which are the same command with `--resume
FOLDER`. A worker trains each run that nobody else has claimed, also on another machine that shares the folder, if its
file system locks.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import filelock
import keras

from keras_seq import training
from keras_seq.backends import num_cores
from keras_seq.files import leftovers, remove_leftovers, remove_partial_files, write_bytes
from keras_seq.ops.dispatch import clear_session
from keras_seq.runs.folders import dataclass_from_dict, is_run, list_runs
from keras_seq.training import checkpoints, run_folder
from keras_seq.training.run_config import GROW_ONLY, MUTABLE, diff, flatten, format_diff, leaf_name, read_config
from keras_seq.training.run_folder import lock_run

SETTINGS = "settings.json"  # the config, where runs are shared by several processes: before the first of them begins
WORKER = "KERAS_SEQ_JOB"  # in the environment of a worker: its number
ADDS_RUNS = {"num_seeds", "models", "parts", "tasks"}  # options that add runs, and leave those that are there alone
TRAINS_FURTHER = GROW_ONLY - ADDS_RUNS | {"patience", "on_nan"}  # options that may end a finished run elsewhere
POLL_SECONDS = 0.5


def run_once(run: pathlib.Path, seed: int, train_one: Callable[[], dict]) -> dict:
    """Return the result of a run; train it, with the random seed set, unless it is finished.

    A ValueError of the training becomes a RuntimeError: all options were checked before, so it is a bug.
    """
    return run_all([(run, seed, train_one)])[0] if is_worker() else _run_once(run, seed, train_one)


def run_all(runs: Sequence[tuple[pathlib.Path, int, Callable[[], dict]]]) -> list[dict]:
    """Return the results of runs `(run, seed, train_one)`, as `run_once` does; several jobs share them.

    If some diverge, the others are trained before `TrainingDiverged` is raised.
    """
    diverged = []

    def train(*run):
        try:
            return _run_once(*run)
        except training.TrainingDiverged as error:
            if len(runs) == 1:
                raise
            diverged.append(f"{run[0].name}: {str(error).rstrip('.')}.")

    if is_worker():
        results = finish_all([(run[0], functools.partial(train, *run)) for run in runs])
    else:
        results = [train(*run) for run in runs]
    if diverged:
        others = "The other runs are finished; keras-seq report compares those of language models."
        raise training.TrainingDiverged(" ".join([*diverged, others]))
    return results


def _run_once(run, seed, train_one):
    if (result := training.load_result(run)) is not None:
        return result
    clear_session()
    keras.utils.set_random_seed(seed)
    print(f"\n{run.name}")
    try:
        return train_one()
    except (training.CheckpointError, training.OptionError):
        raise
    except ValueError as error:
        raise RuntimeError(f"{run.name} failed while training.") from error


def folder_to_resume(arguments: Sequence[str]) -> pathlib.Path | None:
    """Return the folder of the runs that `--resume` names on a command line, or None."""
    for word, next_word in itertools.zip_longest(arguments, arguments[1:]):
        name, _, value = word.partition("=")
        if name == "--resume" and (value or next_word):
            folder = pathlib.Path(value or next_word)
            folder = folder.parent if is_run(folder) else folder
            if not list_runs(folder) and not (folder / SETTINGS).exists():
                expected = "LOG_DIR/EXPERIMENT/TIME, or start a new run"
                raise ValueError(f"--resume {folder}: it has no run with a config.json; expected {expected}.")
            return folder
    return None


def remove_all_leftovers(folder: pathlib.Path):
    """Remove the temporary files of processes that were killed."""
    remove_partial_files(folder)
    for run in list_runs(folder):
        if leftovers(run) or (run / ".pid").exists():
            with lock_run(run):
                remove_leftovers(run)


def write_settings(folder: pathlib.Path, config: Any):
    """Write the config for workers, which may come before the first run has one."""
    run_folder.write_checksummed(folder / SETTINGS, {"experiment": dataclasses.asdict(config)})


def load_config(folder: pathlib.Path, config_class: type) -> Any:
    """Load the config, an instance of `config_class`, from the first run in a folder whose config.json can be read."""
    first_error = None
    for run in [*list_runs(folder), folder]:
        try:
            saved = run_folder.read_checksummed(run / SETTINGS) if run == folder else read_config(run)
            return dataclass_from_dict(config_class, saved["experiment"])
        except (checkpoints.CheckpointError, FileNotFoundError) as error:
            first_error = first_error or error
        except (KeyError, TypeError, AttributeError) as error:
            path = run / "config.json"
            raise ValueError(f"--resume {path}: it does not hold the config of this experiment.") from error
    raise first_error


@contextlib.contextmanager
def changed_options(folder: pathlib.Path, saved: Any, config: Any) -> Iterator[Any]:
    """Check the options changed on resume, write them to the config.json of every run, and yield the config.

    If anything ends the block, Ctrl-C too, and no run has gone on, all files are what they were.
    """
    config = dataclasses.replace(config, resume=saved.resume, log_dir=saved.log_dir)
    changes = diff(dataclasses.asdict(saved), dataclasses.asdict(config))
    refused = {name: pair for name, pair in changes.items() if not _may_change(leaf_name(name), *pair)}
    if refused:
        names = {name for name in flatten(dataclasses.asdict(saved)) if leaf_name(name) in MUTABLE | ADDS_RUNS}
        raise ValueError(
            f"--resume {folder}: {format_diff(refused)}. Options that can change: {', '.join(sorted(names))}; lengths "
            "can only grow, and lists at their end."
        )
    if not changes:
        yield config
        return
    getattr(config, "check_resumed", lambda saved: None)(saved)
    run_configs = {run: read_config(run) for run in list_runs(folder)}
    paths = (*folder.glob("*/config.json"), *folder.glob("*/result.json"), folder / SETTINGS)
    files = {path: path.read_bytes() for path in paths if path.exists()}
    with contextlib.ExitStack() as locks:
        for run in run_configs:
            locks.enter_context(lock_run(run))
        if any(leaf_name(name) in TRAINS_FURTHER for name in changes):
            for path in folder.glob("*/result.json"):
                path.unlink(missing_ok=True)
        for run, saved_config in run_configs.items():
            changed = {**saved_config, "experiment": dataclasses.asdict(config)}
            run_folder.write_checksummed(run / "config.json", changed)
        if (folder / SETTINGS).exists():
            write_settings(folder, config)
    progress = _progress(folder)
    print(f"Resuming with changed options: {format_diff(changes)}.")
    try:
        yield config
    except BaseException:
        if _progress(folder).items() <= progress.items():  # what is gone comes back
            for path, content in files.items():
                write_bytes(path, content)
        raise


def _progress(folder):
    paths = (*folder.rglob("step-*.safetensors"), *folder.rglob("result.json"))
    return {path: path.stat().st_mtime_ns for path in paths}


def _may_change(name, before, now):
    if isinstance(before, list):
        return name in ADDS_RUNS and now[: len(before)] == before
    return now >= before if name in GROW_ONLY else name in MUTABLE


# Several jobs


def is_worker() -> bool:
    """Return whether this process is a worker of a command with `--jobs`."""
    return WORKER in os.environ


def _claim_path(run):
    path = run.parent / ".claims" / f"{run.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def claim(run: pathlib.Path) -> Iterator[bool]:
    """Yield whether this process has the run to itself inside the `with` block, however it ends."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(filelock.FileLock(_claim_path(run), blocking=False))
            claimed = True
        except filelock.Timeout:
            claimed = False
        yield claimed


def in_turn(work: pathlib.Path) -> contextlib.AbstractContextManager:
    """Return a block that the workers of a folder enter one after the other, the first one to do its work."""
    return filelock.FileLock(_claim_path(work)) if is_worker() else contextlib.nullcontext()


def finish_all(runs: Sequence[tuple[pathlib.Path, Callable[[], dict]]]) -> list[dict]:
    """Return the results of `(run, train)`: train those that nobody else trains, and wait for the others."""
    results = {}
    while len(results) < len(runs):
        before = len(results)
        for run, train in runs:
            if run in results:
                continue
            with claim(run) as claimed:
                if claimed:
                    results[run] = train()
        if len(results) == before:
            time.sleep(POLL_SECONDS)
    return [results[run] for run, _ in runs]


def run_workers(script: str, folder: pathlib.Path, number: int) -> None:
    """Start the workers of a command, say which runs they finish, and wait; what they leave, the command does."""
    command = [sys.executable, "-m", script, "--resume", str(folder)]
    gpus, finished, workers = _gpus(), set(_finished(folder)), []
    print(f"{number} jobs, whose output is in {folder}/job-*.log", flush=True)
    try:
        for n in range(number):
            with open(folder / f"job-{n}.log", "a", encoding="utf-8") as log:
                environment = {**os.environ, **_share(n, max(1, num_cores() // number), gpus), WORKER: str(n)}
                streams = {"stdout": log, "stderr": subprocess.STDOUT}
                # A group of its own: Ctrl-C is for the command, whose SIGTERM would be a second request to stop.
                workers.append(subprocess.Popen(command, env=environment, process_group=0, **streams))
        while any(worker.poll() is None for worker in workers):
            time.sleep(POLL_SECONDS)
            for name in sorted(set(_finished(folder)) - finished):
                print(f"{name} is finished", flush=True)
                finished.add(name)
    except BaseException:
        for worker in workers:  # each saves a checkpoint
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait()
        raise
    for n, worker in enumerate(workers):
        if worker.returncode:
            print(f"Job {n} ended with status {worker.returncode}; what it left is done now.", file=sys.stderr)


def _finished(folder):
    return [path.parent.name for path in folder.rglob("result.json")]


def _share(n, threads, gpus):
    """Return the environment variables that give a worker its share of cores and GPUs."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "NPROC")  # NPROC: XLA's, for JAX
    share = {name: os.environ.get(name, str(threads)) for name in names}
    return {**share, **({"CUDA_VISIBLE_DEVICES": gpus[n % len(gpus)]} if gpus else {})}


def _gpus():
    """Return the names of the GPUs that this process may use, without starting them."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(n) for n, _ in enumerate(listed.splitlines())]

"""Train one model in several processes, on one machine or many, by JAX's own coordination.

    KERAS_DISTRIBUTION_JOB_ADDRESSES=host0:1234 KERAS_DISTRIBUTION_NUM_PROCESSES=2 KERAS_DISTRIBUTION_PROCESS_ID=0

Under SLURM, Open MPI and Kubernetes JAX reads addresses and numbers from the scheduler. All processes run the same
program on the same batches. Process 0 writes the run's folder; the others write a private copy, which they remove. What
depends on the clock or on a signal is agreed on, so that all take the same step next.
"""

import contextlib
import ctypes
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import tempfile
import threading
import zlib
from collections.abc import Iterator

import keras
import numpy as np

ADDRESSES, NUMBER, ID = (f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"))
SCHEDULERS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")  # what says how many processes a scheduler has started
KUBERNETES = "JOB_COMPLETION_INDEX"  # of an indexed job; JAX needs the package kubernetes there
SECONDS_TO_CONNECT = 120
SECONDS_TO_NOTICE = 30  # after which the others end when a process hangs; one that has ended they notice at once
LOST = "Another process of the training has ended or cannot be reached: start all by the same command, and it goes on."
LOST_IN_JAX = re.compile(r"Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|coordination service", re.IGNORECASE)


class LostProcess(RuntimeError):
    """Report that another process of the training has ended or cannot be reached."""


_on_abort = None  # what C calls, which must not be collected
_copies = []  # private folders of this process


def are_named() -> bool:
    """Return whether Keras's environment variables name the processes of a training."""
    return ADDRESSES in os.environ


def are_requested() -> bool:
    """Return whether the environment says that this is one process of several."""
    numbers = [os.environ.get(name, "1") for name in SCHEDULERS]
    return are_named() or KUBERNETES in os.environ or any(n.isdecimal() and int(n) > 1 for n in numbers)


def connect() -> None:
    """Wait for all processes that the environment names; call it before anything is computed.

    Raises:
        ValueError: The environment does not name them, the port is taken, or they do not answer.
    """
    import jax

    named = _from_environment() if are_named() else {}
    try:
        jax.distributed.initialize(
            **named,
            initialization_timeout=SECONDS_TO_CONNECT,
            heartbeat_timeout_seconds=SECONDS_TO_NOTICE,
            shutdown_timeout_seconds=SECONDS_TO_NOTICE,
        )
    except (RuntimeError, ValueError) as error:
        where = named.get("coordinator_address", "the address that the scheduler names")
        raise ValueError(
            f"{where}: the processes do not find each other ({str(error).splitlines()[0]:.200}); expected one for each "
            "number, started within two minutes, the first one at this address."
        ) from None
    _end_by_a_sentence()


def _end_by_a_sentence():
    """Say why, where JAX aborts this process because the first one, or its machine, is gone."""

    def ends(number):
        os.write(2, f"{LOST}\n".encode())
        for copy in _copies:
            shutil.rmtree(copy, ignore_errors=True)
        os._exit(1)

    global _on_abort
    _on_abort = ctypes.CFUNCTYPE(None, ctypes.c_int)(ends)
    c_signal = ctypes.CDLL(None).signal  # Python's own handlers run later, and an abort does not wait
    c_signal.argtypes, c_signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    c_signal(signal.SIGABRT, ctypes.cast(_on_abort, ctypes.c_void_p))


def exit_soon(status: int, seconds: float) -> None:
    """End this process at the latest after some seconds: at its exit JAX waits for the others, which may wait for it.

    Args:
        status: Exit status.
        seconds: Time for a common exit of all processes.
    """
    timer = threading.Timer(seconds, os._exit, (status,))
    timer.daemon = True
    timer.start()


@contextlib.contextmanager
def noticing_loss() -> Iterator[None]:
    """Raise `LostProcess` where JAX raises that another process cannot be reached."""
    try:
        yield
    except (RuntimeError, ValueError) as error:  # JAX raises either
        if isinstance(error, LostProcess) or count() == 1 or not LOST_IN_JAX.search(str(error)):
            raise
        raise LostProcess(LOST) from error


def _from_environment():
    """Return the arguments of `jax.distributed.initialize` that Keras's variables stand for."""
    addresses = os.environ[ADDRESSES].split(",")
    values = {name: os.environ.get(name, "") for name in (NUMBER, ID)}
    for name, value in values.items():
        if not value.isdecimal():
            raise ValueError(f"{name}={value}: expected an integer beside {ADDRESSES}.")
    number, process_id = int(values[NUMBER]), int(values[ID])
    if not process_id < number or len(addresses) not in (1, number):
        raise ValueError(
            f"{ID}={process_id}: expected 0 to {number - 1} with {NUMBER}={number}, and one address or {number}."
        )
    host, _, port = addresses[0].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"{ADDRESSES}={addresses[0]}: expected HOST:PORT of the first process.")
    if process_id == 0:
        with socket.socket() as probe:
            try:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", int(port)))
            except OSError as error:
                raise ValueError(f"{ADDRESSES}={addresses[0]}: port {port} is taken; name another one.") from error
    return {"coordinator_address": addresses[0], "num_processes": number, "process_id": process_id}


def count() -> int:
    """Return the number of processes that train together; 1 without a distribution."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.num_processes


def is_first() -> bool:
    """Return whether this process writes the run's folder."""
    if count() == 1:
        return True
    import jax

    return jax.process_index() == 0


def of_all(values) -> np.ndarray:
    """Return what each process gives, `[processes, n]`, the same in all; each waits for the others.

    Args:
        values: Integers `[n]`, n the same in all processes.
    """
    values = np.asarray(values, "int32")
    if count() == 1:
        return values[None]
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(values)


def largest(*values: int) -> list[int]:
    """Return for each value the largest among those of all processes; each waits for the others."""
    return of_all(values).max(axis=0).tolist()


def share_seed() -> None:
    """Set the random seed of all processes to the same number, one that the first of them draws."""
    keras.utils.set_random_seed(int(of_all([random.randrange(2**31 - 1)])[0, 0]))


def whole_value(variable) -> np.ndarray:
    """Return the value of a variable whose rows may be divided among processes; each waits for the others."""
    value = variable.value
    if count() == 1 or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(variable)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


def check_equal(settings: dict) -> None:
    """Check that all processes were started with the same settings.

    Args:
        settings: Values by name.

    Raises:
        ValueError: They differ; the message names the settings that do.
    """
    names = [*settings]
    digests = [_digest(name, value) for name, value in settings.items()]
    numbers = of_all([len(names)])
    gathered = of_all(digests) if (numbers == len(names)).all() else None
    same = [] if gathered is None else (gathered == gathered[0]).all(axis=0)
    if gathered is None or not all(same):
        what = ", ".join(name for name, equal in zip(names, same, strict=False) if not equal) or "another version"
        raise ValueError(f"The processes were started with different settings ({what}): start all by the same command.")


def _digest(name, value):
    return zlib.crc32(f"{name}={value}".encode()) >> 1  # an int32


@contextlib.contextmanager
def private_folder(folder: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the folder in the first process, and a copy of it, which is removed at the end, in the others.

    Args:
        folder: Folder of runs, which all processes can read if it has files.
    """
    folder = pathlib.Path(folder)
    if is_first():
        of_all([0])  # the others have copied it
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="keras_seq-process-") as parent:
        _copies.append(parent)
        copy = pathlib.Path(parent) / folder.name
        if folder.exists():
            ignored = shutil.ignore_patterns(".lock", ".pid", "*.partial*")
            shutil.copytree(folder, copy, ignore=ignored)
        copy.mkdir(exist_ok=True)
        of_all([0])
        yield copy

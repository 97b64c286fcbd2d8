"""Train one model on several devices, in one process or many, with Keras's own distribution on JAX.

    data     each group of devices computes its rows of the batch; gradients are summed         --devices N
    model    each device computes its heads and hidden units of a Transformer                   --mesh data=2,model=2

The batch of a step, the clipped norm and every loss are those of the whole batch on any number of devices: GSPMD (Xu et
al., 2021, arXiv:2105.04663) divides one program. Weights are copied to each device, or divided with their optimizer
state along `data` (ZeRO, Rajbhandari et al., 2020, arXiv:1910.02054), and those of a Transformer along `model`
(Megatron-LM, Shoeybi et al., 2019, arXiv:1909.08053).

Processes find each other by KERAS_DISTRIBUTION_JOB_ADDRESSES=host0:1234, ..._NUM_PROCESSES and ..._PROCESS_ID, or by
their scheduler. All run the same program on the same batches. Process 0 writes the run's folder, the others a private
copy. What depends on the clock or on a signal is agreed on, so that all take the same step next.
"""

import contextlib
import ctypes
import math
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
from typing import Literal

import keras
import numpy as np

DATA, MODEL = "data", "model"
STATE = r"(.*/)?stateful(_\d+)?/state(_\d+)?"  # of `stateful_training_model`
HEADS = r".*/(self|cross)_attention(_\d+)?"
FEED_FORWARD = r".*/feed_forward(_\d+)?"
# Columns of the first matrix and rows of the second, so that a block adds up once for attention and once after it.
TRANSFORMER = {
    f"{HEADS}/(query|key|value|gate)/kernel": (None, MODEL),
    f"{HEADS}/(query|key|value|gate)/bias": (MODEL,),
    f"{HEADS}/output/kernel": (MODEL, None),
    f"{HEADS}/bucket_bias": (None, MODEL),
    f"{FEED_FORWARD}/(hidden|gate)/kernel": (None, MODEL),
    f"{FEED_FORWARD}/(hidden|gate)/bias": (MODEL,),
    f"{FEED_FORWARD}/output/kernel": (MODEL, None),
}
SIZES = ("num_heads", "num_key_value_heads", "feed_forward_dim")  # of a model's config, which `model` divides

ADDRESSES, NUMBER, ID = (f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"))
SCHEDULERS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")  # what says how many processes a scheduler has started
KUBERNETES = "JOB_COMPLETION_INDEX"  # of an indexed job; JAX needs the package kubernetes there
SECONDS_TO_CONNECT = 120
SECONDS_TO_NOTICE = 30  # until the others end when a process hangs; they notice at once when one has ended
LOST = "Another process of the training has ended or cannot be reached: start all by the same command, and it goes on."
LOST_IN_JAX = re.compile(r"Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|coordination service", re.IGNORECASE)
_on_abort = None  # C calls it, so that it must not be collected
_copies = []  # private folders of this process


class LostProcess(RuntimeError):
    """Report that another process of the training has ended or cannot be reached."""


class _Distribution(keras.distribution.ModelParallel):
    """Lay out variables by a map of their paths, and weights along `data` too, if they are to be sharded."""

    def __init__(self, sizes, devices, shard_weights):
        device_mesh = keras.distribution.DeviceMesh((sizes[DATA], sizes[MODEL]), (DATA, MODEL), devices)
        layout_map = keras.distribution.LayoutMap(device_mesh)
        layout_map[STATE] = (DATA,)
        for pattern, axes in TRANSFORMER.items() if sizes[MODEL] > 1 else ():
            layout_map[pattern] = axes
        super().__init__(layout_map=layout_map, batch_dim_name=DATA, auto_shard_dataset=False)
        self.sizes, self.shard_weights = sizes, shard_weights

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        axes = [*layout.axes, *[None] * (len(variable.shape) - len(layout.axes))]
        for size, axis in zip(variable.shape, axes, strict=True):
            if axis is not None and size % self.sizes[axis]:
                raise ValueError(
                    f"{variable.path} has shape {tuple(variable.shape)}; expected a multiple of {self.sizes[axis]} "
                    f"where it is divided along {axis}: choose another --mesh or --devices."
                )
        if self.shard_weights and variable.trainable:
            axes = _along_data(axes, variable.shape, self.sizes[DATA])
        return keras.distribution.TensorLayout(axes, self.device_mesh)


def divided_axes(path: str, shape: tuple[int, ...], sizes: dict[str, int], shard_weights: bool) -> list[str | None]:
    """Return for each axis of a weight the axis of the mesh that divides it, or None."""
    matches = [axes for pattern, axes in TRANSFORMER.items() if sizes[MODEL] > 1 and re.fullmatch(pattern, path)]
    axes = [*matches[0]] if matches else [None] * len(shape)
    return _along_data(axes, shape, sizes[DATA]) if shard_weights else axes


def _along_data(axes, shape, size):
    """Divide the longest axis that is whole and has a multiple of `size`, if there is one."""
    free = [n for n, axis in enumerate(axes) if axis is None and shape[n] % size == 0]
    longest = max(free, key=lambda n: shape[n], default=None)
    return [DATA if n == longest else axis for n, axis in enumerate(axes)]


def parse_mesh(mesh: str) -> dict[str, int]:
    """Return the sizes of a mesh by its axes, in the order data, model."""
    sizes = dict(re.findall(r"(data|model)=([1-9]\d{0,5})(?=,|$)", mesh))
    if not sizes or sorted(mesh.split(",")) != sorted(f"{axis}={size}" for axis, size in sizes.items()):
        raise ValueError(f"--mesh {mesh}: expected sizes of its axes, such as data=4 or data=2,model=2.")
    return {axis: int(sizes.get(axis, 1)) for axis in (DATA, MODEL)}


def use_devices(
    devices: int | Literal["all"] | None = None, mesh: str | None = None, shard_weights: bool = False
) -> None:
    """Divide all models that are built from now on among devices: a number, all, or a mesh such as data=2,model=2.

    With neither, all devices are used if Keras's variables name several processes, and else one as before. A scheduler
    (SLURM, Open MPI, Kubernetes) is asked for its processes only with `devices` or `mesh`.
    """
    several = are_requested()
    devices = "all" if devices is mesh is None and are_named() else devices
    if devices is mesh is None:
        if shard_weights:
            raise ValueError("--shard-weights: expected --devices or --mesh beside it, which say among how many.")
        return
    option = f"--devices {devices}" if mesh is None else f"--mesh {mesh}"
    sizes = {DATA: devices, MODEL: 1} if mesh is None else parse_mesh(mesh)
    if keras.backend.backend() != "jax":
        raise ValueError(
            f"{option}: several devices are used on JAX only, and Keras's backend is {keras.backend.backend()}; "
            "expected KERAS_BACKEND=jax."
        )
    if several and (sizes[MODEL] > 1 or shard_weights):
        what = "--shard-weights" if shard_weights else option
        raise ValueError(f"{what}: expected one process; among several, every device has all weights.")
    if several:
        connect()
    available = keras.distribution.list_devices()
    if sizes[DATA] == "all":
        sizes[DATA] = len(available)
    number = math.prod(sizes.values())
    if devices not in (None, "all", number):
        raise ValueError(f"--devices {devices}: expected {number}, the devices of --mesh {mesh}, or no --devices.")
    if not 1 <= number <= len(available):
        raise ValueError(f"{option}: expected 1 to {len(available)}, the devices that JAX finds.")
    if several and number < len(available):
        raise ValueError(f"{option}: expected {len(available)}, all devices of the processes.")
    if shard_weights and sizes[DATA] == 1:
        raise ValueError(f"--shard-weights: expected several devices along data, not {option}.")
    if number > 1:
        keras.distribution.set_distribution(_Distribution(sizes, available[:number], shard_weights))
    if several:
        share_seed()


def mesh_size(axis: str) -> int:
    """Return the number of devices along an axis of the mesh, 1 without one."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.device_mesh.shape[(DATA, MODEL).index(axis)]


def check_rows(option: str, batch_size: int) -> None:
    """Check that the devices along `data` divide a batch."""
    if batch_size % mesh_size(DATA):
        divisors = [n for n in range(1, mesh_size(DATA)) if batch_size % n == 0]
        raise ValueError(
            f"{option} {batch_size}: expected a multiple of the {mesh_size(DATA)} devices along data; the batch is a "
            f"property of the run, so use {' or '.join(map(str, divisors))} of them, or start a run of another size."
        )


def check_model(name: str, model_config) -> None:
    """Check that the devices along `model` divide the heads and hidden units of a Transformer."""
    for size in SIZES:
        value = getattr(model_config, size, None)
        if value is not None and hasattr(model_config, "num_heads") and value % mesh_size(MODEL):
            option = f"--{name}.{size.replace('_', '-')} {value}"
            raise ValueError(f"{option}: expected a multiple of {mesh_size(MODEL)}, the devices along model of --mesh.")


def are_named() -> bool:
    """Return whether Keras's environment variables name the processes of a training."""
    return ADDRESSES in os.environ


def are_requested() -> bool:
    """Return whether the environment says that this is one process of several."""
    numbers = [os.environ.get(name, "1") for name in SCHEDULERS]
    return are_named() or KUBERNETES in os.environ or any(n.isdecimal() and int(n) > 1 for n in numbers)


def connect() -> None:
    """Wait for all processes that the environment names; call it before anything is computed."""
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
    """End this process after some seconds at the latest: at its exit JAX waits for others that may wait for it."""
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
    """Return what each process gives, `[processes, n]`, the same in all; each waits for the others."""
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
    """Check that all processes were started with the same settings; the error names those that differ."""
    same = np.zeros(0, bool)
    if (of_all([len(settings)]) == len(settings)).all():
        digests = of_all([zlib.crc32(f"{name}={value}".encode()) >> 1 for name, value in settings.items()])  # int32
        same = (digests == digests[0]).all(axis=0)  # [settings], of [processes, settings]
    if not len(same) or not same.all():
        what = ", ".join(name for name, equal in zip(settings, same, strict=False) if not equal) or "another version"
        raise ValueError(f"The processes were started with different settings ({what}): start all by the same command.")


@contextlib.contextmanager
def private_folder(folder: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the folder in the first process, and in the others a copy of it that is removed at the end."""
    folder = pathlib.Path(folder)
    if is_first():
        of_all([0])  # the others have copied it
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="keras_seq-process-") as parent:
        _copies.append(parent)
        copy = pathlib.Path(parent) / folder.name
        if folder.exists():
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".lock", ".pid", "*.partial*"))
        copy.mkdir(exist_ok=True)
        of_all([0])
        yield copy

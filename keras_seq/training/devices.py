"""Train one model on several devices, with Keras's own distribution on JAX.

    data     each group of devices computes its rows of the batch; gradients are summed         --devices N
    model    each device computes its heads and hidden units of a Transformer                   --mesh data=2,model=2

The batch of a step, the clipped norm and every loss are those of the whole batch, whatever the number of devices:
the compiler (GSPMD, Xu et al., 2021, arXiv:2105.04663) divides one program for all of them. Weights are copied to each
device, or divided with their optimizer state along `data` (ZeRO, Rajbhandari et al., 2020, arXiv:1910.02054), and the
matrices of a Transformer along `model` (Megatron-LM, Shoeybi et al., 2019, arXiv:1909.08053). The carried state of
`Stateful` is divided like the rows of the batch.
"""

import math
import re
from typing import Literal

import keras

from keras_seq.training import processes

DATA, MODEL = "data", "model"
STATE = r"(.*/)?stateful(_\d+)?/state(_\d+)?"  # of training_run.stateful_training_model
HEADS = r".*/(self|cross)_attention(_\d+)?"
FEED_FORWARD = r".*/feed_forward(_\d+)?"
# Columns of the first matrix and rows of the second, so that a block adds up once for attention and once after it.
TRANSFORMER = {
    f"{HEADS}/(query|key|value)/kernel": (None, MODEL),
    f"{HEADS}/(query|key|value)/bias": (MODEL,),
    f"{HEADS}/output/kernel": (MODEL, None),
    f"{FEED_FORWARD}/(hidden|gate)/kernel": (None, MODEL),
    f"{FEED_FORWARD}/(hidden|gate)/bias": (MODEL,),
    f"{FEED_FORWARD}/output/kernel": (MODEL, None),
}
SIZES = ("num_heads", "num_key_value_heads", "feed_forward_dim")  # of a model's config, which `model` divides


class _Distribution(keras.distribution.ModelParallel):
    """Lay out variables by a map of their paths, and weights along `data` too, if they are to be sharded."""

    def __init__(self, layout_map, shard_weights):
        super().__init__(layout_map=layout_map, batch_dim_name=DATA, auto_shard_dataset=False)
        self.shard_weights = shard_weights

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        sizes = dict(zip((DATA, MODEL), self.device_mesh.shape, strict=True))
        axes = [*layout.axes, *[None] * (len(variable.shape) - len(layout.axes))]
        for size, axis in zip(variable.shape, axes, strict=True):
            if axis is not None and size % sizes[axis]:
                raise ValueError(
                    f"{variable.path} has shape {tuple(variable.shape)}; expected a multiple of {sizes[axis]} "
                    f"where it is divided along {axis}: choose another --mesh or --devices."
                )
        if self.shard_weights and variable.trainable:
            axes = _along_data(axes, variable.shape, sizes[DATA])
        return keras.distribution.TensorLayout(axes, self.device_mesh)


def divided_axes(path: str, shape: tuple[int, ...], sizes: dict[str, int], shard_weights: bool) -> list[str | None]:
    """Return along which axis of the mesh each axis of a weight is divided.

    Args:
        path: Path of the trainable variable.
        shape: Its shape.
        sizes: Devices by axis of the mesh.
        shard_weights: Whether weights are divided along `data`.
    """
    matches = [axes for pattern, axes in TRANSFORMER.items() if sizes[MODEL] > 1 and re.fullmatch(pattern, path)]
    axes = [*matches[0]] if matches else [None] * len(shape)
    return _along_data(axes, shape, sizes[DATA]) if shard_weights else axes


def _along_data(axes, shape, size):
    """Divide the longest axis that is whole and has a multiple of `size`, if there is one."""
    free = [n for n, axis in enumerate(axes) if axis is None and shape[n] % size == 0]
    longest = max(free, key=lambda n: shape[n], default=None)
    return [DATA if n == longest else axis for n, axis in enumerate(axes)]


def parse_mesh(mesh: str) -> dict[str, int]:
    """Return the sizes of a mesh by its axes, in the order data, model.

    Args:
        mesh: Such as "data=2,model=2".

    Raises:
        ValueError: It is not that.
    """
    sizes = dict(re.findall(r"(data|model)=([1-9]\d{0,5})(?=,|$)", mesh))
    if not sizes or sorted(mesh.split(",")) != sorted(f"{axis}={size}" for axis, size in sizes.items()):
        raise ValueError(f"--mesh {mesh}: expected sizes of its axes, such as data=4 or data=2,model=2.")
    return {axis: int(sizes.get(axis, 1)) for axis in (DATA, MODEL)}


def use_devices(
    devices: int | Literal["all"] | None = None, mesh: str | None = None, shard_weights: bool = False
) -> None:
    """Divide all models that are built from now on among devices; with neither argument, use one as before.

    Where KERAS_DISTRIBUTION_JOB_ADDRESSES is set, all devices of all processes are used; with `devices` or `mesh`, the
    processes of SLURM, Open MPI and Kubernetes are, too (processes.py).

    Args:
        devices: Number of devices along `data`, or "all"; of all processes together.
        mesh: Sizes of the axes, such as "data=2,model=2"; instead of `devices`, or with it as a check.
        shard_weights: Divide weights and optimizer state along `data`, instead of copying them to each device.

    Raises:
        ValueError: Keras's backend is not JAX, there are fewer devices, `devices` and `mesh` differ, there is nothing
            to shard weights among, or the processes do not find each other.
    """
    several = processes.are_requested()
    devices = "all" if devices is mesh is None and processes.are_named() else devices
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
        processes.connect()
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
        keras.distribution.set_distribution(_distribution(sizes, available[:number], shard_weights))
    if several:
        processes.share_seed()


def _distribution(sizes, devices, shard_weights):
    device_mesh = keras.distribution.DeviceMesh((sizes[DATA], sizes[MODEL]), (DATA, MODEL), devices)
    layout_map = keras.distribution.LayoutMap(device_mesh)
    layout_map[STATE] = (DATA,)
    for pattern, axes in TRANSFORMER.items() if sizes[MODEL] > 1 else ():
        layout_map[pattern] = axes
    return _Distribution(layout_map, shard_weights)


def mesh_size(axis: str) -> int:
    """Return the number of devices along an axis of the mesh, 1 without one."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else distribution.device_mesh.shape[(DATA, MODEL).index(axis)]


def check_rows(option: str, batch_size: int) -> None:
    """Check that the devices along `data` divide a batch.

    Args:
        option: The option to name, such as "--batch-size".
        batch_size: Rows of a batch.

    Raises:
        ValueError: They do not.
    """
    if batch_size % mesh_size(DATA):
        divisors = [n for n in range(1, mesh_size(DATA)) if batch_size % n == 0]
        raise ValueError(
            f"{option} {batch_size}: expected a multiple of the {mesh_size(DATA)} devices along data; the batch is a "
            f"property of the run, so use {' or '.join(map(str, divisors))} of them, or start a run of another size."
        )


def check_model(name: str, model_config) -> None:
    """Check that the devices along `model` divide the heads and hidden units of a Transformer.

    Args:
        name: Name of the model.
        model_config: Its config.

    Raises:
        ValueError: They do not.
    """
    for size in SIZES:
        value = getattr(model_config, size, None)
        if value is not None and hasattr(model_config, "num_heads") and value % mesh_size(MODEL):
            option = f"--{name}.{size.replace('_', '-')} {value}"
            raise ValueError(f"{option}: expected a multiple of {mesh_size(MODEL)}, the devices along model of --mesh.")

"""Compute on paper what the devices of a mesh send in a training step, and how long that takes.

    gradients      2 (N - 1) / N x P            summed over the N devices along data
    weights        (N - 1) / N x P              gathered once a step, with shard_weights
    activations    2 (M - 1) / M x B/N T D      for each matrix that the M devices along model divide: its outputs are
                                                summed in the forward pass, or the gradients of its inputs in the
                                                backward pass

P are the bytes of the weights; of a matrix that is divided along model, 1 / M. The fractions are the least that sums
and gathers can send, which a ring does (Patarasuk & Yuan, 2009, doi:10.1016/j.jpdc.2008.09.002), and the sums those of
the programs that XLA compiles.
"""

import math

import keras

from keras_seq.models.counts import flops_per_token
from keras_seq.training.distributed import DATA, MODEL, divided_axes


def bytes_sent(
    model: keras.Model,
    batch_size: int,
    sequence_length: int,
    data: int = 1,
    model_parallel: int = 1,
    shard_weights: bool = False,
) -> dict[str, float]:
    """Return the bytes that each device sends in a training step, by what they are.

    Args:
        model: A built `LanguageModel`.
        batch_size: Rows of the batch of all devices, B.
        sequence_length: Tokens of a window, T.
        data: Devices along data, N.
        model_parallel: Devices along model, M.
        shard_weights: Whether weights are divided along data, too.

    Returns:
        Bytes by `"gradients"`, `"weights"` and `"activations"`; the losses, norms and checks of a step are left out.
    """
    sizes, sent = {DATA: data, MODEL: model_parallel}, {"gradients": 0.0, "weights": 0.0, "activations": 0.0}
    itemsize = 4 if model.compute_dtype == "float32" else 2
    for variable in model.trainable_variables:
        axes = divided_axes(variable.path, variable.shape, sizes, shard_weights)
        held = 4 * math.prod(variable.shape) / (model_parallel if MODEL in axes else 1)
        sent["gradients"] += 2 * (data - 1) / data * held
        sent["weights"] += (data - 1) / data * held if DATA in axes else 0
        if MODEL in axes and len(axes) == 2:
            width = variable.shape[1 - axes.index(MODEL)]
            tensor = itemsize * batch_size / data * sequence_length * width
            sent["activations"] += 2 * (model_parallel - 1) / model_parallel * tensor
    return sent


def step_seconds(
    model: keras.Model, batch_size: int, sequence_length: int, flops: float, bandwidth: float, **mesh
) -> tuple[float, float]:
    """Return the seconds that a training step computes and sends, if it does one after the other.

    Args:
        model: A built `LanguageModel`.
        batch_size: Rows of the batch of all devices, B.
        sequence_length: Tokens of a window, T.
        flops: Floating-point operations a second that a device reaches in training.
        bandwidth: Bytes a second that a device sends.
        **mesh: `data`, `model_parallel` and `shard_weights` of `bytes_sent`.
    """
    operations = flops_per_token(model, sequence_length, training=True) * batch_size * sequence_length
    number = mesh.get("data", 1) * mesh.get("model_parallel", 1)
    sent = sum(bytes_sent(model, batch_size, sequence_length, **mesh).values())
    return operations / number / flops, sent / bandwidth

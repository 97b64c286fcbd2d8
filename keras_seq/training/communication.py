"""Compute on paper what the devices of a mesh send in a training step, and where more of them stop helping.

    gradients      2 (N - 1) / N x P             summed over the N devices along data (all-reduce, each sends this)
    weights        2 (N - 1) / N x P             gathered for the forward and the backward pass, with shard_weights;
                                                 the gradients are then summed to where they are kept: (N - 1) / N x P
    activations    2 x 2 (M - 1) / M x B/N T D   for each attention and feed-forward layer: summed over the M devices
                                                 along model, once forward and once backward

P are the bytes of the weights that a device holds or gathers: 1 / M of a matrix that is divided along model. These are
the least bytes of any algorithm, reached by a ring (Patarin & Yuan, 2009, doi:10.1016/j.jpdc.2008.09.002). A step
computes for seconds = FLOPs / (N M x FLOP/s), and N at which it sends as long as it computes is where scaling stops.
"""

import math

import keras

from keras_seq.models.flops import flops_per_token
from keras_seq.training.devices import DATA, MODEL, divided_axes


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
        once = (data - 1) / data * held
        sent["gradients"] += once if DATA in axes else 2 * once
        sent["weights"] += 2 * once if DATA in axes else 0
        if axes[0] == MODEL and len(axes) == 2:  # the second matrix of a pair, whose parts are summed
            whole = batch_size / data * sequence_length * variable.shape[1] * itemsize
            sent["activations"] += 2 * 2 * (model_parallel - 1) / model_parallel * whole
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

"""Compute the gates of a recurrent layer at all time steps at once, from its inputs and outputs.

    LSTM, GRU            gate_t = sigmoid(x_t W + b + h_{t-1} U)
    minGRU, minLSTM      gate_t = sigmoid(x_t W + b)

h_{t-1} is the layer's own output at the previous time step, so no loop is needed.
"""

from keras import ops

from keras_seq.layers.recurrent.gru import GRU
from keras_seq.layers.recurrent.lstm import LSTM
from keras_seq.layers.recurrent.min_rnn import MinGRU, MinLSTM
from keras_seq.ops.tensor_checks import at_least_float32

GATES = {  # in the order of the kernel's blocks; None is the candidate. Subclasses may have other formulas
    LSTM: ("input", "forget", None, "output"),
    GRU: ("update", "reset", None),
    MinGRU: ("update", None),
    MinLSTM: ("forget", "input", None),
}


def gates(layer, x, y, h=None):
    """Compute the gates of one call by name, `[B, T, units]` each, from its inputs, its outputs and the one before."""
    names = GATES[type(layer)]
    blocks = ops.split(pre_activations(layer, x, y, h), len(names), axis=-1)
    activation = getattr(layer, "recurrent_activation", ops.sigmoid)
    return {name: activation(z) for name, z in zip(names, blocks, strict=True) if name is not None}


def pre_activations(layer, x, y, h=None):
    """Compute the pre-activations of the gates and of the candidate, `[B, T, gates units]`, float32 or wider."""
    dtype = layer.compute_dtype
    x, y = ops.cast(x, dtype), ops.cast(y, dtype)
    if isinstance(layer, (MinGRU, MinLSTM)):
        return ops.cast(layer.project_inputs(x), at_least_float32(dtype))
    first = ops.zeros_like(y[:, :1]) if h is None else ops.expand_dims(ops.cast(h, dtype), 1)
    recurrent_inputs = ops.matmul(ops.concatenate([first, y[:, :-1]], axis=1), ops.cast(layer.recurrent_kernel, dtype))
    if isinstance(layer, GRU) and layer.reset_after and layer.use_bias:
        recurrent_inputs = recurrent_inputs + ops.cast(layer.bias[1], dtype)
    return ops.cast(layer.project_inputs(x) + recurrent_inputs, at_least_float32(dtype))

"""The gates of a recurrent layer at all positions at once, read from what it took and gave.

    LSTM, GRU            gate_t = sigmoid(x_t W + b + h_{t-1} U)
    minGRU, minLSTM      gate_t = sigmoid(x_t W + b)

h_{t-1} is the layer's own output one position earlier, so no loop is needed.
"""

from keras import ops

from keras_seq.layers.gru import GRU
from keras_seq.layers.lstm import LSTM
from keras_seq.layers.min_rnn import MinGRU, MinLSTM
from keras_seq.layers.precision import at_least_float32

GATES = {  # by the block of the kernel; None is the candidate. What inherits from these has other formulas
    LSTM: ("input", "forget", None, "output"),
    GRU: ("update", "reset", None),
    MinGRU: ("update", None),
    MinLSTM: ("forget", "input", None),
}


def gates(layer, x, y, h=None):
    """The gates of one call of a layer.

    Args:
        layer: an `LSTM`, `GRU`, `MinGRU` or `MinLSTM`.
        x: `[B, T, D]`, what it took.
        y: `[B, T, units]`, its output at every position, as `layer.sequence` gives it.
        h: `[B, units]`, the output before the first position; zeros by default.

    Returns:
        A dict from names to `[B, T, units]`, float32 at least.

    Raises:
        KeyError: a layer of another kind.
    """
    names = GATES[type(layer)]
    blocks = ops.split(pre_activations(layer, x, y, h), len(names), axis=-1)
    open_by = getattr(layer, "recurrent_activation", ops.sigmoid)
    return {name: open_by(z) for name, z in zip(names, blocks, strict=True) if name is not None}


def pre_activations(layer, x, y, h=None):
    """What goes into the gates, `[B, T, gates units]`, the candidate's block among them; arguments as for `gates`."""
    dtype = layer.compute_dtype
    x, y = ops.cast(x, dtype), ops.cast(y, dtype)
    if isinstance(layer, (MinGRU, MinLSTM)):
        return ops.cast(layer.project_inputs(x), at_least_float32(dtype))
    first = ops.zeros_like(y[:, :1]) if h is None else ops.expand_dims(ops.cast(h, dtype), 1)
    seen = ops.matmul(ops.concatenate([first, y[:, :-1]], axis=1), ops.cast(layer.recurrent_kernel, dtype))
    if isinstance(layer, GRU) and layer.reset_after and layer.use_bias:
        seen = seen + ops.cast(layer.bias[1], dtype)
    return ops.cast(layer.project_inputs(x) + seen, at_least_float32(dtype))

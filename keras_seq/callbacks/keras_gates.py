"""Compute the gates of `keras.layers.LSTM` and `GRU` at all time steps at once, with the layer's own activations.

    gate_t = recurrent_activation(x_t W + b + h_{t-1} U)

Keras's layer may return its last output only: a copy of it, with the same weights, returns h at every time step.
"""

import keras
from keras import layers, ops

GATES = {  # by the block of the kernel; None is the candidate
    layers.LSTM: ("input", "forget", None, "output"),
    layers.GRU: ("update", "reset", None),
}


def has_recordable_gates(layer: keras.layers.Layer) -> bool:
    """Return whether `keras_gates` applies; it does not with `stateful=True`, where the initial state is unknown."""
    return type(layer) in GATES and not layer.stateful


def keras_gates(layer: keras.layers.Layer, sequences, initial_state=None, mask=None) -> dict:
    """Compute the gates of one call of a layer, by name: `[B, T, units]`, in the order in which the layer reads.

    Args:
        layer: A built `keras.layers.LSTM` or `GRU`.
        sequences: Its inputs `[B, T, D]`.
        initial_state: h `[B, units]`, or a list that begins with it; zeros by default.
        mask: Its mask `[B, T]`.
    """
    options = {"return_sequences": True, "return_state": False, "zero_output_for_mask": False}
    copy = type(layer).from_config({**layer.get_config(), **options, "name": None})
    copy.build(sequences.shape)
    copy.set_weights(layer.get_weights())
    h = copy(sequences, initial_state=initial_state, mask=mask, training=False)
    x = ops.flip(sequences, axis=1) if layer.go_backwards else sequences  # h is in the order of reading
    cell = layer.cell
    if isinstance(initial_state, list | tuple):
        initial_state = initial_state[0]
    first = ops.zeros_like(h[:, :1]) if initial_state is None else ops.expand_dims(initial_state, 1)
    z = ops.matmul(x, cell.kernel) + ops.matmul(ops.concatenate([first, h[:, :-1]], axis=1), cell.recurrent_kernel)
    if cell.use_bias:
        bias = ops.convert_to_tensor(cell.bias)
        z = z + (ops.sum(bias, axis=0) if len(bias.shape) == 2 else bias)  # GRU has one bias for each of W and U
    names = GATES[type(layer)]
    blocks = ops.split(z, len(names), axis=-1)
    return {name: cell.recurrent_activation(z) for name, z in zip(names, blocks, strict=True) if name is not None}

"""The gates of `keras.layers.LSTM` and `GRU` at all positions at once, with the activations that they were given.

    gate_t = recurrent_activation(x_t W + b + h_{t-1} U)

Keras's layer may give its last output only: a copy of it, with the same weights, gives h at every position.
"""

from keras import layers, ops

GATES = {  # by the block of the kernel; None is the candidate
    layers.LSTM: ("input", "forget", None, "output"),
    layers.GRU: ("update", "reset", None),
}


def is_gated(layer) -> bool:
    """Whether the gates of a layer can be told: one with `stateful=True` does not say where it began."""
    return type(layer) in GATES and not layer.stateful


def keras_gates(layer, sequences, initial_state=None, mask=None) -> dict:
    """The gates of one call of a layer, by name: `[B, T, units]`, in the order in which the layer reads.

    Args:
        layer: a built `keras.layers.LSTM` or `GRU`.
        sequences: `[B, T, D]`, what it took.
        initial_state: h `[B, units]`, or a list that begins with it; zeros unless given.
        mask: `[B, T]`, what it took.
    """
    asked = {"return_sequences": True, "return_state": False, "zero_output_for_mask": False}
    copy = type(layer).from_config({**layer.get_config(), **asked, "name": None})
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
        z = z + (ops.sum(bias, axis=0) if len(bias.shape) == 2 else bias)  # of the gates; GRU has one for each matrix
    names = GATES[type(layer)]
    blocks = ops.split(z, len(names), axis=-1)
    return {name: cell.recurrent_activation(z) for name, z in zip(names, blocks, strict=True) if name is not None}

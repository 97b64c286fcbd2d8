"""Show how open the gates of recurrent layers are.

    closed    fraction of gate values below 0.1 (Karpathy, Johnson & Fei-Fei, 2015, arXiv:1506.02078, section 4.2)
    open      fraction of gate values above 0.9

A forget gate above 0.9 keeps the cell state; one that is always so never forgets. A gate that is always half open has
not learned anything yet. The gates of `keras.layers.LSTM` and `GRU` are computed at all time steps at once:

    gate_t = recurrent_activation(x_t W + b + h_{t-1} U)
"""

import keras
import numpy as np
from keras import layers, ops

from keras_seq.callbacks.diagnostics import Diagnostic, model_arguments
from keras_seq.interpretability.activations import ensure_built, record_calls
from keras_seq.layers.introspection import GATES, gates, named_layers
from keras_seq.tracking.summaries import Summaries

KERAS_GATES = {  # by the block of the kernel; None is the candidate
    layers.LSTM: ("input", "forget", None, "output"),
    layers.GRU: ("update", "reset", None),
}
CLOSED_BELOW, OPEN_ABOVE = 0.1, 0.9
DESCRIPTIONS = {
    "gate_saturation/closed": f"Fraction of a gate's values below {CLOSED_BELOW}.",
    "gate_saturation/open": f"Fraction of a gate's values above {OPEN_ABOVE}.",
    "gates": "All values of a gate, from 0 (closed) to 1 (open): every unit at every position of the data.",
}


class GateSaturation(Diagnostic):
    """Write a histogram `gates/LAYER/GATE` of the gate values on x, and the fractions that are closed and open.

    ```python
    GateSaturation(windows[:8], log_dir="logs/mine")
    ```

    The fractions are the scalars `gate_saturation/closed/LAYER/GATE` and `gate_saturation/open/LAYER/GATE`. Layers are
    `LSTM`, `GRU`, `MinGRU` and `MinLSTM` of keras_seq, `LSTM` and `GRU` of `keras.layers` (without `stateful=True`), at
    any depth of the model.

    Args:
        x: A small batch of the model's inputs, such as ids `[B, T]`.
        **kwargs: Arguments of `Diagnostic`.
    """

    def __init__(self, x, **kwargs):
        super().__init__(**kwargs)
        self.x = x

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return a phrase if the model has no gated layer, or takes another number of inputs than x has."""
        if not _gated_layers(model):
            return "LSTM, GRU, MinGRU or MinLSTM of keras_seq or keras.layers"
        return model_arguments(model, len(keras.tree.flatten(self.x)))

    def try_model(self, model: keras.Model) -> None:
        """Call the model on x; print a message if that calls none of its gated layers."""
        if not gate_values(model, self.x):
            print(f"GateSaturation shows nothing of {model.name}, whose call on x calls none of its gated layers.")

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return the histograms and fractions of all gates."""
        scalars, histograms = {}, {}
        for layer, layer_gates in gate_values(model, self.x).items():
            for gate, values in layer_gates.items():
                name = f"{layer}/{gate}"
                scalars[f"gate_saturation/closed/{name}"] = float(np.mean(values < CLOSED_BELOW))
                scalars[f"gate_saturation/open/{name}"] = float(np.mean(values > OPEN_ABOVE))
                histograms[f"gates/{name}"] = values
        return Summaries(scalars, histograms=histograms, descriptions=DESCRIPTIONS)


def _gated_layers(model):
    return {layer: name for name, layer in named_layers(model) if type(layer) in GATES or has_recordable_gates(layer)}


def gate_values(model: keras.Model, x) -> dict[str, dict[str, np.ndarray]]:
    """Return the gates `[B, T, units]` of every gated layer, by its name in the model and the name of the gate.

    A layer that is called several times has the rows of all calls, one after the other; `[1, N, units]` if they differ
    in length. A layer that is not called has no entry.
    """
    names = _gated_layers(model)
    if not names:
        return {}
    ensure_built(model, x)
    keras_layers = [layer for layer in names if has_recordable_gates(layer)]
    own_layers = [layer for layer in names if not has_recordable_gates(layer)]
    # `sequence` returns all time steps, whatever the call returns of them
    with record_calls(own_layers, "sequence") as own_calls, record_calls(keras_layers, "call") as keras_calls:
        model(x, training=False)
    values = {}
    for layer, (sequences, state, *_), kwargs, output in own_calls:
        h = state[0] if isinstance(state, tuple) else state
        values.setdefault(layer, []).append(gates(layer, sequences, output[0], h, kwargs.get("reset_mask")))
    for layer, args, kwargs, _ in keras_calls:
        options = {name: value for name, value in kwargs.items() if name != "training"}
        values.setdefault(layer, []).append(keras_gates(layer, *args, **options))
    return {name: _join(values[layer]) for layer, name in names.items() if layer in values}


def _join(calls):
    """Join the gates of several calls."""
    values = {}
    for gate in calls[0]:
        tensors = (gates_of_call[gate] for gates_of_call in calls)
        arrays, axis = [ops.convert_to_numpy(ops.cast(x, "float32")) for x in tensors], 0  # [B, T, units] each
        if len({array.shape[1] for array in arrays}) > 1:
            arrays, axis = [array.reshape(1, -1, array.shape[-1]) for array in arrays], 1
        values[gate] = np.concatenate(arrays, axis)
    return values


def has_recordable_gates(layer: keras.layers.Layer) -> bool:
    """Return whether `keras_gates` applies; it does not with `stateful=True`, where the initial state is unknown."""
    return type(layer) in KERAS_GATES and not layer.stateful


def keras_gates(layer: keras.layers.Layer, sequences, initial_state=None, mask=None) -> dict:
    """Compute the gates of one call of a layer, by name: `[B, T, units]`, in the order in which the layer reads.

    The layer may return its last output only: a copy of it, with the same weights, returns h at every time step.
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
    names = KERAS_GATES[type(layer)]
    blocks = ops.split(z, len(names), axis=-1)
    return {name: cell.recurrent_activation(z) for name, z in zip(names, blocks, strict=True) if name is not None}

"""How open the gates of recurrent layers are.

    below 0.1    the share of gate values that are as good as shut (Karpathy, Johnson & Fei-Fei, 2015, section 4.2)
    above 0.9    the share that is as good as open

A forget gate above 0.9 keeps the memory; one that is always so never forgets. A gate that is always half open has
learned nothing yet.
"""

import numpy as np
from keras import ops

from keras_seq.callbacks.diagnostic import Diagnostic
from keras_seq.callbacks.keras_gates import is_gated, keras_gates
from keras_seq.callbacks.layer_hooks import record_calls
from keras_seq.layers.gates import GATES, gates
from keras_seq.layers.introspection import named_layers
from keras_seq.tracking.summaries import Summaries

CLOSED_BELOW, OPEN_ABOVE = 0.1, 0.9


class GateSaturation(Diagnostic):
    """A histogram `gates/LAYER/GATE` of all values on x, and the two shares under Scalars, as `gates_below_0.1/...`.

    ```python
    GateSaturation(windows[:8], log_dir="logs/mine")
    ```

    Layers are `LSTM`, `GRU`, `MinGRU` and `MinLSTM` of keras_seq, `LSTM` and `GRU` of `keras.layers` (without
    `stateful=True`), wherever they stand in the model.

    Args:
        x: a small batch of what the model takes, such as ids `[B, T]`.
        **kwargs: those of `Look`.
    """

    def __init__(self, x, **kwargs):
        super().__init__(**kwargs)
        self.x = x

    def missing_requirement(self, model):
        return None if _gated_layers(model) else "LSTM, GRU, MinGRU or MinLSTM of keras_seq or keras.layers"

    def compute_summaries(self, model):
        scalars, histograms = {}, {}
        for layer, of_layer in gate_values(model, self.x).items():
            for gate, values in of_layer.items():
                name = f"{layer}/{gate}"
                scalars[f"gates_below_{CLOSED_BELOW}/{name}"] = float(np.mean(values < CLOSED_BELOW))
                scalars[f"gates_above_{OPEN_ABOVE}/{name}"] = float(np.mean(values > OPEN_ABOVE))
                histograms[f"gates/{name}"] = values
        return Summaries(scalars, histograms=histograms)


def _gated_layers(model):
    return {layer: name for name, layer in named_layers(model) if type(layer) in GATES or is_gated(layer)}


def gate_values(model, x) -> dict[str, dict[str, np.ndarray]]:
    """The gates `[B, T, units]` of every gated layer, by its name in the model and the name of the gate.

    Args:
        model: any Keras model with such layers.
        x: what it takes.
    """
    names = _gated_layers(model)
    if not names:
        return {}
    theirs = [layer for layer in names if is_gated(layer)]
    ours = [layer for layer in names if not is_gated(layer)]
    # `sequence` has all positions, whatever the call is to return of them
    with record_calls(ours, "sequence") as calls, record_calls(theirs, "call") as keras_calls:
        model(x, training=False)
    found = {layer: _gates_of(layer, given, result) for layer, given, _, result in calls}
    found |= {layer: _keras_gates_of(layer, given, told) for layer, given, told, _ in keras_calls}
    return {name: found[layer] for layer, name in names.items()}


def _gates_of(layer, given, result):
    x, state, *_ = given
    found = gates(layer, x, result[0], state[0] if isinstance(state, tuple) else state)
    return _as_arrays(found)


def _keras_gates_of(layer, given, told):
    return _as_arrays(keras_gates(layer, *given, **{name: value for name, value in told.items() if name != "training"}))


def _as_arrays(found):
    return {name: ops.convert_to_numpy(ops.cast(values, "float32")) for name, values in found.items()}

"""Show what a language model sees at one position: the tensors of a step that tell the models apart.

    gates        of LSTM, GRU, minGRU and minLSTM: each gate, the cell state c, the output h     [1, units] each
    attention    of attention with a cache: the weights of the slots, and the position of each   [1, H, 1, S], [1, S]
    state        of every other recurrent layer: what it remembers                               [1, ...]
    lens         the prediction if a layer were the last one (the logit lens)                    [1, V] each

All of it is computed by the step itself, with calls of its layers recorded, on any backend and in compiled code.
"""

import dataclasses
import math
from typing import Any

from keras import ops, tree

from keras_seq.interpretability.activations import attention_layers, edit_outputs, inspected_layers, record_calls
from keras_seq.interpretability.lenses import readout
from keras_seq.layers import LSTM
from keras_seq.layers.introspection import GATES, gates, named_layers
from keras_seq.ops.dispatch import reference

CACHE = {"key", "value", "decay_sum", "position", "length"}


@dataclasses.dataclass(frozen=True)
class View:
    """Some tensors of a step."""

    kind: str  # "gates", "attention", "state" or "lens"
    layer: str  # its name in the model; "" for the lens
    tensors: dict[str, Any]  # by gate, as "weights" and "positions", by size as parts of a state, or by layer


def step_with_views(model, ids, state) -> tuple[Any, Any, list[View]]:
    """Compute a step of ids `[1, 1]`; return the logits, the new state and the views, none but of a `LanguageModel`."""
    if not hasattr(model, "blocks"):
        with reference():
            return *model.step(ids, state), []
    gated = {layer: name for name, layer in named_layers(model) if type(layer) in GATES}  # subclasses differ
    attention = attention_layers(model)
    with record_calls([*gated, *attention], "call") as calls, record_calls(attention, "attend") as attends, reference():
        logits, new_state = model.step(ids, state)
    weights = {layer: output[1] for layer, _, _, output in attends}
    views = []
    for layer, args, kwargs, output in calls:
        old = kwargs["state"] if "state" in kwargs else args[1]
        if layer in gated:
            views.append(View("gates", gated[layer], _signals(layer, args[0], *output, old, kwargs.get("reset_mask"))))
        elif "position" in old:
            views.append(View("attention", attention[layer], _attention(weights[layer], old, output[-1])))
    views += _states(model, new_state)
    lens = _lens(model, ids, state)
    return logits, new_state, [*views, *([View("lens", "", lens)] if len(lens) > 1 else [])]


def _signals(layer, x, y, new_state, old_state, reset_mask):
    h = tree.flatten(old_state)[0]
    with reference():
        signals = {f"{name} gate": gate[:, 0] for name, gate in gates(layer, x, y, h, reset_mask).items()}
    if type(layer) is LSTM:
        signals["cell state c"] = tree.flatten(new_state)[1]
    return {**signals, "output h": y[:, 0]}


def _attention(weights, old, new):
    position = new["position"]
    if weights.shape[-1] > position.shape[-1]:  # a sliding window: the slot that has just fallen out of it, too
        position = ops.concatenate([old["position"][:, :1], position], axis=1)
    return {"weights": weights, "positions": position}


def _states(model, new_state):
    """Return the states of the blocks that are neither gates nor caches."""
    blocks = [block for block in model.blocks if hasattr(block, "get_initial_state")]
    views = []
    for block, state in zip(blocks, new_state, strict=True):
        tensors = [
            tensor
            for path, tensor in tree.flatten_with_path(state)
            if not CACHE & {*path} and "float" in str(tensor.dtype) and len(tensor.shape) > 1
        ]
        if tensors and type(block) not in GATES:
            tensors.sort(key=lambda tensor: -math.prod(tensor.shape))  # the matrix before what a convolution remembers
            names = [f"state {n}" for n in range(1, len(tensors) + 1)] if len(tensors) > 1 else ["state"]
            views.append(View("state", block.name, dict(zip(names, tensors, strict=True))))
    return views


def _lens(model, ids, state):
    """Return the logits that the end of the model makes of the output of each layer."""
    skipped = readout(model)
    layers = {name: layer for name, layer in inspected_layers(model).items() if layer not in skipped}
    with record_calls(layers.values(), "call") as calls, reference():
        model.step(ids, state)
    outputs = {layer: tree.flatten(output)[0] for layer, _, _, output in reversed(calls)}  # the first call of each
    *_, last = layers.values()
    return {
        name: _logits_given(model, ids, state, last, outputs[layer])
        for name, layer in layers.items()
        if outputs[layer].shape == outputs[last].shape
    }


def _logits_given(model, ids, state, last, x):
    def edit(layer, output):
        return (x, *output[1:]) if isinstance(output, tuple) else x

    with edit_outputs([last], edit), reference():
        return model.step(ids, state)[0]

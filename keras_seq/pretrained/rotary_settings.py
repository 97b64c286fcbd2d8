"""The rotary positions of a config.json: `rope_theta` and `rope_scaling`, or since transformers 5 `rope_parameters`."""

import math

from keras_seq.layers import RotaryPositions
from keras_seq.pretrained.family import Setting

KEYS = {  # of each rope_type, and the arguments of RotaryPositions that say the same
    "default": {},
    "linear": {"factor": "scaling_factor"},
    "yarn": {
        "factor": "scaling_factor",
        "original_max_position_embeddings": "original_context_length",
        "beta_slow": "low_turns",
        "beta_fast": "high_turns",
    },
    "llama3": {
        "factor": "scaling_factor",
        "original_max_position_embeddings": "original_context_length",
        "low_freq_factor": "low_turns",
        "high_freq_factor": "high_turns",
    },
}


def _read(values):
    rope = {**(values["rope_scaling"] or {}), **(values["rope_parameters"] or {})}
    base = rope.pop("rope_theta", values["rope_theta"])
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    rope.pop("type", None)  # both spellings, side by side
    if kind not in KEYS:
        raise ValueError(f"rope_type={kind!r}; expected one of {', '.join(KEYS)}")
    amplitude = rope.pop("attention_factor", None)
    if kind == "yarn":
        rope.setdefault("original_max_position_embeddings", values["max_position_embeddings"])
        if amplitude is not None and not math.isclose(amplitude, 0.1 * math.log(rope["factor"]) + 1):
            raise ValueError(f"rope_parameters: attention_factor={amplitude}; expected 0.1 ln(factor) + 1")
    for key in rope.keys() - KEYS[kind].keys():
        raise ValueError(f"rope_parameters: {key}={rope[key]!r} is unknown for rope_type={kind!r}")
    arguments = {argument: rope[key] for key, argument in KEYS[kind].items() if rope.get(key) is not None}
    scaling = None if kind == "default" else kind
    return {"positions": RotaryPositions(base=float(base), scaling=scaling, **arguments)}


def _write(config):
    positions = config.positions
    scaling = {"rope_type": positions.scaling}
    for key, argument in KEYS.get(positions.scaling, {}).items():
        scaling[key] = getattr(positions, argument)
    # the older keys, which every version of transformers and other engines read
    return {"rope_theta": positions.base, "rope_scaling": None if positions.scaling is None else scaling}


ROTARY = Setting({"rope_theta": 10_000.0, "rope_scaling": None, "rope_parameters": None}, _read, _write)

"""The rotary positions of a config.json: `rope_theta` and `rope_scaling`, or since transformers 5 `rope_parameters`."""

import math
import re

from keras_seq import checks
from keras_seq.layers import RotaryPositions
from keras_seq.pretrained.family import Setting

BASE = 10_000.0  # where config.json does not say it
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


OPTIONAL = {"yarn": {"beta_slow", "beta_fast"}}  # by rope_type


def _read(values):
    rope, name = rope_values(values)
    kind = rope.pop("rope_type")
    if not isinstance(kind, str) or kind not in KEYS:
        raise ValueError(f"{name}: rope_type={kind!r}; expected one of {', '.join(KEYS)}")
    base, amplitude = rope.pop("rope_theta"), rope.pop("attention_factor", None) if kind == "yarn" else None
    for key in KEYS[kind]:
        if rope.get(key) is None and key not in OPTIONAL.get(kind, ()):
            raise ValueError(f"{name}: {key} is missing; expected a number for rope_type={kind!r}")
    for key, value in rope.items():
        if key not in KEYS[kind]:
            raise ValueError(f"{name}: {key}={value!r} is unknown for rope_type={kind!r}")
        if value is not None:
            check = checks.positive_integer if key == "original_max_position_embeddings" else checks.positive_number
            check(f"{name}: {key}", value)
    if amplitude is not None:
        checks.positive_number(f"{name}: attention_factor", amplitude)
        if not math.isclose(amplitude, 0.1 * math.log(rope["factor"]) + 1):
            raise ValueError(f"{name}: attention_factor={amplitude}; expected 0.1 ln(factor) + 1")
    arguments = {argument: rope[key] for key, argument in KEYS[kind].items() if rope.get(key) is not None}
    keys = {"base": "rope_theta"} | {argument: key for key, argument in KEYS[kind].items()}
    scaling = None if kind == "default" else kind
    return {"positions": rotary(keys, base=float(base), scaling=scaling, **arguments)}


def rope_values(values: dict) -> tuple[dict, str]:
    """Return what config.json says of rotations, `rope_theta` and `rope_type` included, and the key that says it.

    Args:
        values: The values of all keys of the config.

    Raises:
        ValueError: Two keys say different things.
    """
    older, newer = (values[key] or {} for key in ("rope_scaling", "rope_parameters"))
    for key in older.keys() & newer.keys():
        if older[key] != newer[key]:
            raise ValueError(
                f"rope_scaling has {key}={older[key]!r}, rope_parameters {newer[key]!r}; expected the same"
            )
    rope = older | newer
    kinds = [rope.pop(key) for key in ("rope_type", "type") if key in rope]  # two spellings, maybe side by side
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        raise ValueError(f"rope_type={kinds[0]!r}, type={kinds[1]!r}; expected the same")
    name = "rope_scaling" if older and not newer else "rope_parameters"
    rope = {"rope_theta": values["rope_theta"], "rope_type": kinds[0] if kinds else "default"} | rope
    checks.positive_number(f"{name}: rope_theta", rope["rope_theta"])
    if values["rope_theta"] not in (BASE, rope["rope_theta"]):
        raise ValueError(
            f"rope_theta={values['rope_theta']!r}, and {rope['rope_theta']!r} in {name}; expected the same"
        )
    return rope, name


def rotary(keys: dict[str, str], **arguments) -> RotaryPositions:
    """Return rotary positions, or raise a ValueError with the keys of config.json instead of arguments.

    Args:
        keys: The keys by argument.
        **arguments: The arguments of `RotaryPositions`.
    """
    try:
        return RotaryPositions(**arguments)
    except ValueError as error:
        message = re.sub(r"\b\w+\b(?==)", lambda match: keys.get(match[0], match[0]), str(error))
        raise ValueError(message) from None


def _write(config):
    positions = config.positions
    scaling = {"rope_type": positions.scaling}
    for key, argument in KEYS.get(positions.scaling, {}).items():
        scaling[key] = getattr(positions, argument)
    # the older keys, which every version of transformers and other engines read
    return {"rope_theta": positions.base, "rope_scaling": None if positions.scaling is None else scaling}


ROTARY = Setting({"rope_theta": BASE, "rope_scaling": None, "rope_parameters": None}, _read, _write)

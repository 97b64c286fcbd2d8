"""Read a config.json by a family's settings, and write one: every key is used, known to change nothing, or refused."""

import dataclasses
import re
from typing import Any

from keras_seq import checks
from keras_seq.pretrained.family import Family
from keras_seq.pretrained.tensor_files import PretrainedError

_IGNORED = (
    "_name_or_path name_or_path architectures model_type transformers_version torch_dtype dtype use_cache torchscript "
    "initializer_range output_attentions output_hidden_states return_dict id2label label2id num_labels problem_type "
    "finetuning_task task_specific_params gradient_checkpointing tokenizer_class prefix bos_token_id eos_token_id "
    "pad_token_id sep_token_id cls_token_id decoder_start_token_id chunk_size_feed_forward _attn_implementation "
    "attn_implementation use_bfloat16 vocab_size unsloth_version unsloth_fixed max_length min_length do_sample "
    "early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty "
    "length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences "
    "output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values "
    "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens tf_legacy_loss"
)
IGNORED = frozenset(_IGNORED.split())  # keys of every config that do not change logits
CONSTANTS = {  # of every config
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "tie_encoder_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
    "auto_map": None,
}
NULLABLE = {"head_dim", "num_key_value_heads", "sliding_window"}  # null: it follows from other keys, or is off
OBJECTS = {"rope_scaling", "rope_parameters"}
LAYERS = {"n_layer", "num_hidden_layers"}
MAX_LAYERS = 10_000  # before a list of as many is made
OTHER_VALUES = {"layer_types", "block_types", "time_step_limit", "time_step_rank"}  # a setting checks them itself


def check_value(key: str, value: Any, default: Any) -> None:
    """Check that a key has a value of the kind of its default: True or False, a size, or a positive number or rate.

    Args:
        key: The key.
        value: Its value.
        default: The default. None is that of a size, or of an object, that may be left out.

    Raises:
        ValueError: It has another.
    """
    if value is None and (default is None or "drop" in key or key in NULLABLE):
        return
    if isinstance(default, bool):
        checks.boolean(key, value)
    elif key in OBJECTS:
        if not isinstance(value, dict):
            raise ValueError(f"{key}={value!r}; expected an object, or null")
    elif "drop" in key:
        checks.fraction(key, value)
    elif isinstance(default, float):
        checks.positive_number(key, value)
    elif not isinstance(default, str) and key not in OTHER_VALUES:
        checks.integer(key, value, int(key != "max_window_layers"), MAX_LAYERS if key in LAYERS else checks.MAX_INT32)


def vocabulary_size(config: dict) -> int:
    """Return V.

    Args:
        config: What config.json holds.

    Raises:
        PretrainedError: It is not a positive integer.
    """
    try:
        return checks.positive_integer("vocab_size", config.get("vocab_size"))
    except ValueError as error:
        raise PretrainedError(f"config.json: {shortened(error, config)}.") from None


def read_config(family: Family, config: dict, dropout: float | None = None) -> Any:
    """Return the keras_seq config that says the same.

    Args:
        family: The family.
        config: What config.json holds.
        dropout: The dropout rate instead of the file's, or None.

    Raises:
        PretrainedError: A key is unknown, or has a value that keras_seq cannot express.
    """
    constants = {**CONSTANTS, **family.constants}
    known = IGNORED | family.ignored | constants.keys() | {key for s in family.settings for key in s.defaults}
    for key in config.keys() - known:
        raise PretrainedError(
            f"config.json: {key}={_short(config[key])} is unknown for model_type={family.model_type!r}, and "
            "may change logits; expected a key that keras_seq knows."
        )
    for key, value in constants.items():
        if (given := config.get(key, value)) != value or isinstance(given, bool) != isinstance(value, bool):
            raise PretrainedError(f"config.json: {key}={_short(given)}; expected {value!r}.")
    values = {key: value for setting in family.settings for key, value in setting.defaults.items()} | config
    fields = {}
    try:
        settings = [s for s in family.settings if dropout is None or not any("drop" in key for key in s.defaults)]
        for setting in settings:
            for key, default in setting.defaults.items():
                check_value(key, values[key], default)
        for setting in settings:
            fields |= setting.read(values)
        return family.config(**fields, **({} if dropout is None else {"dropout": dropout}))
    except ValueError as error:
        raise PretrainedError(f"config.json: {shortened(in_keys(family, str(error)), config)}.") from None


def in_keys(family: Family, message: str) -> str:
    """Return a message of a keras_seq config or layer with the keys of config.json instead of fields.

    Args:
        family: The family.
        message: The message.
    """
    keys = {field: key for setting in family.settings for field, key in setting.fields.items()}
    message = message.replace("the width D=", f"{keys.get('embedding_dim', 'the width')}=")
    message = message.replace(", or a key_dim", f", or a {keys['key_dim']}" if "key_dim" in keys else "")
    return re.sub(r"\b\w+\b(?==)", lambda match: keys.get(match[0], match[0]), message)


def shortened(message: Any, config: dict) -> str:
    """Return a message without the full stop, and without the middle of long values of the file.

    Args:
        message: The message, or an error.
        config: What config.json holds.
    """
    message = str(message).rstrip(".")
    for value in config.values():
        message = message.replace(repr(value), _short(value))
    return message


def _short(value):
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def write_config(family: Family, config: Any) -> dict:
    """Return the keys of config.json.

    Args:
        family: The family.
        config: The keras_seq config.
    """
    values = {**family.constants}
    for setting in family.settings:
        values |= setting.write(config)
    return values


def differences(family: Family, config: Any) -> list[str]:
    """Return the fields of a config that its config.json would not bring back, as `name=value` of what would.

    Args:
        family: The family.
        config: The keras_seq config.
    """
    try:
        back = read_config(family, write_config(family, config))
    except PretrainedError as error:
        return [str(error)]
    fields = [field.name for field in dataclasses.fields(config)]
    return [f"{name}={getattr(back, name)!r}" for name in fields if getattr(back, name) != getattr(config, name)]

"""Describe a family of pretrained models by two tables, each of which is read in both directions.

    Setting      keys of config.json                              <->  fields of a keras_seq config
    Tensor       a tensor of model.safetensors, in some layout    <->  one or several variables of the Keras model

Settings are read and written here, tensors in `tensor_table.py`. Every key of a config.json is used, known to change
nothing, or refused. A family is a file of `families/`.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_seq import checks
from keras_seq.pretrained.folder_files import PretrainedError


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a tensor lies in the file, compared with Keras's variable."""

    to_variable: Callable[[np.ndarray], np.ndarray]  # a view, without a copy
    to_tensor: Callable[[np.ndarray], np.ndarray]  # the inverse


AS_IT_IS = Layout(lambda a: a, lambda a: a)
TRANSPOSED = Layout(np.transpose, np.transpose)  # torch's Linear holds [out, in]
CONVOLUTION = Layout(lambda a: a[:, 0, ::-1].T, lambda a: a.T[:, None, ::-1])  # [E, 1, K]; ours looks k positions back


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of the file and the variables that it holds, side by side along their last axis.

    `{n}` stands for the number of a layer. A tensor none of whose variables the model has is not expected in the file.
    """

    name: str
    variables: tuple[str, ...]
    # or a function that returns the layout, given one from paths of variables to their shapes
    layout: Layout | Callable[[Callable[[str], tuple[int, ...]]], Layout] = AS_IT_IS
    # further variables, and whether a model whose variables are in this tensor has them
    beside: dict[str, bool] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Keys of config.json and the fields of a keras_seq config that say the same.

    `read` gets the values of all keys of the config, defaults included; it raises a ValueError that names a value it
    cannot express.
    """

    defaults: dict[str, Any]  # the keys, with the values that transformers assumes where a key is missing
    read: Callable[[dict], dict]  # from values to fields
    write: Callable[[Any], dict]  # from a keras_seq config to keys
    fields: dict[str, str] = dataclasses.field(default_factory=dict)  # that errors name, and the keys to name instead


@dataclasses.dataclass(frozen=True)
class Family:
    """A `model_type` of transformers."""

    model_type: str  # its name in config.json
    architectures: tuple[str, ...]  # classes of transformers that can be loaded; the first if config.json names none
    config: type  # the dataclass of keras_seq that builds the model
    settings: tuple[Setting, ...]
    constants: dict[str, Any]  # keys that must have this value, also assumed where the key is missing
    ignored: frozenset[str]  # keys that do not change logits
    # or a function that returns the tensors of a config, where no shape tells how they lie
    tensors: tuple[Tensor, ...] | Callable[[Any], tuple[Tensor, ...]]
    tied: dict[str, str]  # names of tensors that a file may repeat, and whose values they must have
    buffers: str  # regular expression of tensors that are not weights
    renames: tuple[tuple[str, str], ...]  # patterns and replacements, from other spellings of a name to this table's
    describe: Callable[[Any], Any]  # from a Keras model to the config that builds it, or a ValueError
    eos_token_id: int | None = None  # what transformers writes where no id ends a text, for any vocabulary
    base_prefix: str = ""  # beginning of the names that a class without a head, `...Model`, does not write
    build: Callable[..., Any] | None = None  # for `build_models`, with the same arguments
    architecture_of: Callable[[Any], str] | None = None  # for `architecture`
    # (config, keys of config.json, names of tensors) -> config, where only the tensors say what the model has
    complete: Callable[..., Any] | None = None

    def of(self, config) -> "Family":
        """Return the family with the tensors of a config."""
        return dataclasses.replace(self, tensors=self.tensors(config)) if callable(self.tensors) else self

    def architecture(self, model) -> str:
        """Return the class of transformers that computes what a Keras model does: the first, unless the family says."""
        return self.architecture_of(model) if self.architecture_of else self.architectures[0]

    def build_models(self, config, vocabulary_size, dtype=None, architecture="") -> tuple:
        """Build the model of a config; BERT's may have its encoder beside it."""
        if self.build:
            return self.build(config, vocabulary_size, dtype, architecture)
        return (config.build_model(vocabulary_size, dtype=dtype),)


def same(key: str, field: str, default: Any) -> Setting:
    """Return a setting whose key and field have the same values."""
    read, write = lambda values: {field: values[key]}, lambda config: {key: getattr(config, field)}
    return Setting({key: default}, read, write, {field: key})


def choice(key: str, field: str, default: str, options: dict[str, Any]) -> Setting:
    """Return a setting with few values, named differently."""

    def read(values):
        value = values[key]
        if not isinstance(value, str) or value not in options:
            raise ValueError(f"{key}={value!r}; expected {' or '.join(map(repr, options))}")
        return {field: options[value]}

    written = {value: name for name, value in reversed(options.items())}
    return Setting({key: default}, read, lambda config: {key: written.get(getattr(config, field))}, {field: key})


def fixed(**fields: Any) -> Setting:
    """Return a setting of fields that this family always has."""
    return Setting({}, lambda values: fields, lambda config: {})


def dropouts(**defaults: float) -> Setting:
    """Return the setting of the field `dropout`, which transformers has in several places."""

    def read(values):
        rates = {key: values[key] or 0.0 for key in defaults}
        if len({*rates.values()}) > 1:
            listed = ", ".join(f"{key}={rate}" for key, rate in rates.items())
            raise ValueError(f"{listed}; expected one rate for all, or pass dropout= to load")
        return {"dropout": next(iter(rates.values()))}

    return Setting(defaults, read, lambda config: dict.fromkeys(defaults, config.dropout))


def linear(name: str, *paths: str, layout=TRANSPOSED, beside: dict[str, bool] | None = None) -> tuple[Tensor, ...]:
    """Return the tensors of a dense layer, or of one that is several here, side by side."""
    return tuple(
        Tensor(f"{name}.{tensor}", tuple(f"{path}/{variable}" for path in paths), layout, beside or {})
        for tensor, variable in (("weight", "kernel"), ("bias", "bias"))
    )


def linears(name: str, path: str, **parts: str) -> tuple[Tensor, ...]:
    """Return the tensors of several dense layers, given their names in the file and here."""
    return tuple(tensor for there, here in parts.items() for tensor in linear(f"{name}.{there}", f"{path}/{here}"))


def norm(name: str, path: str) -> tuple[Tensor, ...]:
    """Return the tensors of a layer or RMS normalization."""
    return (
        Tensor(f"{name}.weight", (f"{path}/gamma",)),
        Tensor(f"{name}.weight", (f"{path}/scale",)),
        Tensor(f"{name}.bias", (f"{path}/beta",)),
    )


_IGNORED = (
    "_name_or_path name_or_path architectures model_type transformers_version torch_dtype dtype use_cache torchscript "
    "initializer_range output_attentions output_hidden_states return_dict id2label label2id num_labels problem_type "
    "finetuning_task task_specific_params gradient_checkpointing tokenizer_class prefix bos_token_id eos_token_id "
    "pad_token_id sep_token_id cls_token_id decoder_start_token_id chunk_size_feed_forward _attn_implementation "
    "attn_implementation use_bfloat16 vocab_size unsloth_version unsloth_fixed max_length min_length do_sample "
    "early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty "
    "length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences "
    "is_llama_config transformers.js_config output_scores return_dict_in_generate forced_bos_token_id "
    "forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens "
    "tf_legacy_loss"
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
    "rope_interleaved": False,
    "use_mrope": False,
}
NULLABLE = {"head_dim", "num_key_value_heads", "sliding_window", "pad_token_id"}  # null: by other keys, or off
MAY_BE_ZERO = {"max_window_layers", "num_experts", "pad_token_id", "decoder_start_token_id"}
OBJECTS = {"rope_scaling", "rope_parameters"}
LAYERS = {"n_layer", "num_hidden_layers", "num_layers", "num_decoder_layers"}
MAX_LAYERS = 10_000  # before a list of as many is made
OTHER_VALUES = {  # a setting checks them itself
    *("layer_types", "block_types", "time_step_limit", "time_step_rank", "mlp_only_layers"),
    *("dense_act_fn", "is_gated_act", "scale_decoder_outputs"),
}


def check_value(key: str, value: Any, default: Any) -> None:
    """Check that a key has a value of the kind of its default: True or False, a size, or a positive number or rate."""
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
        checks.integer(key, value, int(key not in MAY_BE_ZERO), MAX_LAYERS if key in LAYERS else checks.MAX_INT32)


def vocabulary_size(config: dict) -> int:
    """Return V."""
    try:
        return checks.positive_integer("vocab_size", config.get("vocab_size"))
    except ValueError as error:
        raise PretrainedError(f"config.json: {shortened(error, config)}.") from None


def read_config(family: Family, config: dict, dropout: float | None = None) -> Any:
    """Return the keras_seq config that says the same."""
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
    """Return a message of a keras_seq config or layer with the keys of config.json instead of fields."""
    keys = {field: key for setting in family.settings for field, key in setting.fields.items()}
    message = message.replace("the width D=", f"{keys.get('embedding_dim', 'the width')}=")
    message = message.replace(", or a key_dim", f", or a {keys['key_dim']}" if "key_dim" in keys else "")
    return re.sub(r"\b\w+\b(?==)", lambda match: keys.get(match[0], match[0]), message)


def shortened(message: Any, config: dict) -> str:
    """Return a message without the full stop, and without the middle of long values of the file."""
    message = str(message).rstrip(".")
    for value in config.values():
        message = message.replace(repr(value), _short(value))
    return message


def _short(value):
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def write_config(family: Family, config: Any) -> dict:
    """Return the keys of config.json."""
    values = {**family.constants}
    for setting in family.settings:
        values |= setting.write(config)
    return values


def differences(family: Family, config: Any) -> list[str]:
    """Return the fields of a config that its config.json would not bring back, as `name=value` of what would."""
    try:
        back = read_config(family, write_config(family, config))
    except PretrainedError as error:
        return [str(error)]
    fields = [field.name for field in dataclasses.fields(config)]
    return [f"{name}={getattr(back, name)!r}" for name in fields if getattr(back, name) != getattr(config, name)]

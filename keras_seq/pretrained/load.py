"""Load a Hugging Face folder: config.json by a table of keys, the tensors by a table of names, the tokenizer's files.

```python
commit = "607a30d783dfa663caf39e06633721c8d4cfcd7e"    # git ls-remote https://huggingface.co/NAME HEAD prints it
loaded = load(download("openai-community/gpt2", revision=commit, online=True))    # from the cache, if it is there
print(generate(loaded.model, loaded.tokenizer, "Once upon a time", stop_token_ids=loaded.stop_token_ids))
```

Shapes are compared before anything is allocated, and tensors are read one at a time.
"""

import dataclasses
import pathlib
import re
from collections.abc import Sequence

import keras

from keras_seq import checks
from keras_seq.pretrained.families import AROUND_TEXT, FAMILIES
from keras_seq.pretrained.family import in_keys, read_config, shortened, vocabulary_size
from keras_seq.pretrained.folder_files import PretrainedError, TensorFiles, read_json, read_tokenizer_files
from keras_seq.pretrained.tensor_table import initialize, match, set_first_value, variables_of, without_memory
from keras_seq.tokenizers.base import Tokenizer

FILES = (
    *("config.json", "generation_config.json", "chat_template.jinja"),
    *("model*.safetensors", "model*.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
)


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """Hold what a Hugging Face folder held."""

    model: keras.Model
    """The model, with its weights: a `LanguageModel`, for T5 an `EncoderDecoder`, or what `BertConfig`,
    `ModernBertConfig` or `masked_lm` build."""
    tokenizer: Tokenizer | None
    """Its tokenizer; None where the folder has none."""
    config: object
    """The keras_seq config that built the model."""
    vocabulary_size: int
    """V."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a generated text, for `generate(stop_token_ids=...)`."""
    encoder: keras.Model | None = None
    """For `BertForPreTraining` the encoder, which shares the weights of `model`."""


def load(
    folder: str | pathlib.Path, dtype: str | None = None, dropout: float | None = None, ignore: Sequence[str] = ()
) -> Pretrained:
    """Load a model that transformers' `save_pretrained` wrote, with its tokenizer.

    Args:
        folder: A folder with config.json, `*.safetensors`, one file or several, in float32, float16 or bfloat16, and,
            if it has a tokenizer, tokenizer.json, vocab.txt, or vocab.json and merges.txt. `download` finds the folder
            of a name such as `openai-community/gpt2`.
        dtype: A dtype policy or its name, e.g. `"mixed_bfloat16"`; None for Keras's default.
        dropout: Dropout rate for fine-tuning; None for that of config.json.
        ignore: Patterns of tensors to leave out, e.g. `["cls.seq_relationship.*"]`.

    Raises:
        PretrainedError: A file is missing, truncated or not of its format; config.json has a key that is unknown or a
            value that keras_seq cannot express; a tensor is missing, left over, has another shape or values that the
            dtype cannot hold.
        ValueError: An argument is out of its range.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise PretrainedError(
            f"{folder} is not a folder; expected one with config.json and model.safetensors: {how_to_download(folder)}."
        )
    _check_dtype(dtype)
    if dropout is not None:
        checks.fraction("dropout", dropout)
    if isinstance(ignore, str):
        raise ValueError(f"ignore={ignore!r}; expected a list of patterns.")
    values = _of_text(read_json(folder / "config.json"))
    family = FAMILIES.get(values.get("model_type") if isinstance(values.get("model_type"), str) else None)
    if family is None:
        if (folder / "model.keras").exists():
            raise PretrainedError(f"{folder} is the folder of a run: keras_seq.load_run loads it.")
        raise PretrainedError(
            f"config.json: model_type={values.get('model_type')!r}; expected one of {', '.join(FAMILIES)}."
        )
    architecture = _architecture(family, values)
    path = folder / "generation_config.json"
    generation, size = read_json(path) if path.exists() else {}, vocabulary_size(values)
    start = generation.get("decoder_start_token_id")
    if start is not None and hasattr(family.config, "decoder_start_token_id"):
        values["decoder_start_token_id"] = _checked_id(path.name, "decoder_start_token_id", start, size)
    config = read_config(family, values, dropout)
    stop_token_ids = _stop_token_ids(generation, values, size, family)
    tokenizer = read_tokenizer_files(folder, family.model_type, size)
    padding = getattr(config, "pad_token_id", family.constants.get("pad_token_id"))  # which the model masks
    if padding is not None and tokenizer is not None and tokenizer.pad_token_id != padding:
        raise PretrainedError(
            f"The tokenizer pads rows with id {tokenizer.pad_token_id}; expected a pad_token in tokenizer_config.json "
            f"with pad_token_id={padding} of config.json."
        )
    files = TensorFiles(folder)
    if family.complete:
        config = family.complete(config, values, set(files))
    for name in ("num_layers", "num_encoder_layers", "num_decoder_layers"):
        number = getattr(config, name, 0)
        if number > len(files):  # each of which would take time, if no memory
            raise PretrainedError(
                in_keys(family, f"config.json: {name}={number}; expected as many as ")
                + f"the {len(files)} tensors can be of."
            )
    try:
        models = without_memory(lambda: family.build_models(config, size, dtype, architecture))
    except ValueError as error:
        raise PretrainedError(f"config.json: {in_keys(family, str(error)).rstrip('.')}.") from None
    variables = variables_of(models)
    tensors = match(family.of(config), {path: tuple(weight.shape) for path, weight in variables.items()}, files, ignore)
    initialize(tensors, variables, files)
    for model in models:
        for variable in model.variables:
            if not any(variable is weight for weight in variables.values()):  # seeds of dropout
                set_first_value(variable, variable.value)
    encoder = models[1] if len(models) > 1 else None
    return Pretrained(models[0], tokenizer, config, size, stop_token_ids, encoder)


def how_to_download(name: str | pathlib.Path) -> str:
    """Say, as a part of an error, which call gets the folder of a name on the hub; a longer path is none."""
    name = name if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(name)) else "OWNER/NAME"
    return (
        f'keras_seq.pretrained.download("{name}", revision=COMMIT, online=True) returns that of a model on the Hugging '
        f"Face hub, and `git ls-remote https://huggingface.co/{name} HEAD` prints its latest commit"
    )


def download(name: str, revision: str | None = None, online: bool = False) -> pathlib.Path:
    """Return the folder of a model in `huggingface_hub`'s cache, for `load`; pickles and code are never fetched.

    Args:
        name: Name of the repository, such as `openai-community/gpt2`.
        revision: The commit, 40 hexadecimal digits: a branch would be other weights one day. The error for another
            value has the command that prints the latest commit.
        online: Whether files that are not in the cache may be fetched.

    Raises:
        PretrainedError: The revision is not a commit, `huggingface_hub` is not installed, or the files are not in the
            cache and cannot or may not be fetched.
    """
    if not isinstance(revision, str) or not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise PretrainedError(
            f"revision={revision!r}; expected a commit of {name}, 40 hexadecimal digits: "
            f"`git ls-remote https://huggingface.co/{name} HEAD` prints the latest."
        )
    try:
        from huggingface_hub import snapshot_download  # here, because it is an extra
    except ImportError:
        raise PretrainedError('huggingface_hub is not installed: pip install "keras_seq[pretrained]".') from None
    try:
        path = snapshot_download(name, revision=revision, allow_patterns=[*FILES], local_files_only=not online)
    except Exception as error:  # of the network, the hub and the cache: many classes
        remedy = "expected an existing name and revision" if online else "pass online=True to fetch it once"
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise PretrainedError(f"{name} at {revision} cannot be had ({reason}); {remedy}.") from error
    return pathlib.Path(path)


def _check_dtype(dtype):
    """Raise a ValueError unless Keras knows the dtype, and it is one of floats."""
    try:
        policy = keras.dtype_policies.get(dtype)
        is_float = not isinstance(policy, keras.dtype_policies.QuantizedDTypePolicy) and all(
            keras.backend.is_float_dtype(name) for name in (policy.variable_dtype, policy.compute_dtype)
        )
    except (ValueError, TypeError):
        is_float = False
    if dtype is not None and not is_float:
        raise ValueError(
            f"dtype={dtype!r}; expected a policy of floats, such as 'float32' or 'mixed_bfloat16': "
            "model.quantize('int8') comes after loading."
        )


def _of_text(values):
    """Return the keys of a config.json; of a model of images, those of the model for text that it holds."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in AROUND_TEXT:
        return values
    text = values.get("text_config")
    if not isinstance(text, dict):
        raise PretrainedError(f"config.json: text_config={text!r:.80}; expected an object.")
    return {key: value for key, value in values.items() if key not in AROUND_TEXT[kind]} | text


def _architecture(family, values):
    names = values.get("architectures")
    if names is None or names == []:
        return family.architectures[0]
    if not isinstance(names, list) or names[0] not in family.architectures:
        message = f"config.json: architectures={names!r}; expected one of {', '.join(family.architectures)}"
        raise PretrainedError(f"{shortened(message, values)}.")
    return names[0]


def _stop_token_ids(generation, values, vocabulary_size, family):
    is_there = "eos_token_id" in generation
    file, named = ("generation_config.json", generation) if is_there else ("config.json", values)
    ids = named.get("eos_token_id")
    if ids is None or (ids == family.eos_token_id and ids >= vocabulary_size):
        return ()
    ids = ids if isinstance(ids, list) else [ids]
    return tuple(_checked_id(file, "eos_token_id", id, vocabulary_size) for id in ids)


def _checked_id(file, name, id, vocabulary_size):
    if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < vocabulary_size:
        raise PretrainedError(f"{file}: {name}={id!r:.80}; expected ids from 0 to {vocabulary_size - 1}, or null.")
    return id

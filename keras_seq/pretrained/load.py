"""Load a Hugging Face folder: config.json by a table of keys, the tensors by a table of names, the tokenizer's files.

```python
loaded = load("path/to/smollm2-135m")
print(generate(loaded.model, loaded.tokenizer, "Once upon a time", stop_token_ids=loaded.stop_token_ids))
```

Shapes are compared before anything is allocated, and tensors are read one at a time.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import keras

from keras_seq.pretrained.config_table import read_config, vocabulary_size
from keras_seq.pretrained.families import FAMILIES
from keras_seq.pretrained.structure import without_memory
from keras_seq.pretrained.tensor_files import PretrainedError, TensorFiles, read_json
from keras_seq.pretrained.tensor_table import initialize, match, variables_of
from keras_seq.pretrained.tokenizer_files import read_tokenizer_files
from keras_seq.tokenizers.base_tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """Hold what a Hugging Face folder held."""

    model: keras.Model
    """The model, with its weights: a `LanguageModel`, or for BERT what `BertConfig` or `masked_lm` builds."""
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

    Returns:
        The model, its tokenizer and what config.json says.

    Raises:
        PretrainedError: A file is missing, truncated or not of its format; config.json has a key that is unknown or a
            value that keras_seq cannot express; a tensor is missing, left over or has another shape.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise PretrainedError(f"{folder} is not a folder; expected one with config.json and model.safetensors.")
    values = read_json(folder / "config.json")
    family = FAMILIES.get(values.get("model_type") if isinstance(values.get("model_type"), str) else None)
    if family is None:
        raise PretrainedError(
            f"config.json: model_type={values.get('model_type')!r}; expected one of {', '.join(FAMILIES)}."
        )
    architecture = _architecture(family, values)
    config, size = read_config(family, values, dropout), vocabulary_size(values)

    def build():
        if family.build:
            return family.build(config, size, dtype, architecture)
        return (config.build_model(size, dtype=dtype),)

    with TensorFiles(folder) as files:
        if config.num_layers > len(files):  # each of which would take time, if no memory
            raise PretrainedError(
                f"config.json: num_layers={config.num_layers}; expected as many as the {len(files)} tensors can be of."
            )
        try:
            models = without_memory(build)
        except ValueError as error:
            raise PretrainedError(f"config.json: {str(error).rstrip('.')}.") from None
        variables = variables_of(models)
        tensors = match(family, {path: tuple(weight.shape) for path, weight in variables.items()}, files, ignore)
        initialize(tensors, variables, files)
    for model in models:
        for variable in model.variables:
            if variable._value is None:  # seeds of dropout
                variable._deferred_initialize()
    return Pretrained(
        models[0],
        read_tokenizer_files(folder, family.model_type, size),
        config,
        size,
        _stop_token_ids(folder, values),
        models[1] if len(models) > 1 else None,
    )


def _architecture(family, values):
    names = values.get("architectures") or [family.architectures[0]]
    if not isinstance(names, list) or names[0] not in family.architectures:
        raise PretrainedError(
            f"config.json: architectures={names!r}; expected one of {', '.join(family.architectures)}."
        )
    return names[0]


def _stop_token_ids(folder, values):
    path = folder / "generation_config.json"
    ids = (read_json(path) if path.exists() else {}).get("eos_token_id", values.get("eos_token_id"))
    ids = ids if isinstance(ids, list) else [ids]
    return tuple(id for id in ids if isinstance(id, int) and not isinstance(id, bool))

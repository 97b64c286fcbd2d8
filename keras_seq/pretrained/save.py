"""Save a model as a Hugging Face folder, by the tables that `load` reads backwards.

```python
save(model, "exported", tokenizer)
# transformers.AutoModelForCausalLM.from_pretrained("exported") has the same logits
```

The family is the first whose config, read off the layers, builds the same model and survives its own config.json.
"""

import functools
import json
import math
import pathlib
from collections.abc import Collection

import keras
import ml_dtypes
import numpy as np

from keras_seq import checks
from keras_seq.files import atomic_folder, is_free, write_tensors
from keras_seq.layers import GatedDeltaNet, GriffinRecurrentBlock, TransformerBlock
from keras_seq.layers.introspection import check_tokenizer, iter_layers
from keras_seq.models import EncoderDecoder, Ensemble, LanguageModel
from keras_seq.models.lora import is_adapter, merged_values
from keras_seq.pretrained.families import FAMILIES
from keras_seq.pretrained.family import Family, differences, write_config
from keras_seq.pretrained.folder_files import INDEX, SINGLE, PretrainedError, overflows, write_tokenizer_files
from keras_seq.pretrained.tensor_table import (
    expected_tensors,
    same_function,
    tensor_of,
    tensor_shape,
    variables_of,
    without_memory,
)
from keras_seq.tokenizers.base import Tokenizer

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
MAX_SHARD_BYTES = 5_000_000_000


def save(
    model: keras.Model,
    folder: str | pathlib.Path,
    tokenizer: Tokenizer | None = None,
    dtype: str = "float32",
    stop_token_ids: tuple[int, ...] = (),
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> str:
    """Write a model so that transformers loads it: config.json, safetensors files, tokenizer files.

    Args:
        model: A model of `GPT2Config`, `LlamaConfig`, `MambaConfig`, `Mamba2Config`, `RecurrentGemmaConfig`,
            `Qwen35Config`, `T5Config`, `BertConfig` or `ModernBertConfig`, or `masked_lm(encoder)`; it may have been
            trained, saved and loaded. Adapters are merged in the file.
        folder: The folder to write: a new one, at once when it is whole, or an empty one.
        tokenizer: Its tokenizer, or None.
        dtype: `"float32"`, `"float16"` or `"bfloat16"`.
        stop_token_ids: Ids that end a generated text, below V.
        max_shard_bytes: Size of the largest file; more tensors go to further files, with an index.

    Returns:
        The name of the class in transformers.

    Raises:
        PretrainedError: No class of transformers computes what the model does; the message names the nearest that
            would. Or the folder has files, the tokenizer has no tokenizer.json, or a weight is not a finite number or
            would not be one in this dtype.
        ValueError: An argument is out of its range, or the tokenizer is that of another model.
    """
    folder = pathlib.Path(folder)
    checks.one_of("dtype", dtype, DTYPES)
    checks.integer("max_shard_bytes", max_shard_bytes, 1)
    if not is_free(folder):
        raise PretrainedError(f"{folder} exists already; expected the name of a new folder, or an empty one.")
    size = _vocabulary_size(model)
    if isinstance(stop_token_ids, str) or not isinstance(stop_token_ids, Collection):
        raise ValueError(f"stop_token_ids={stop_token_ids!r}; expected ids, such as (3,).")
    stop_token_ids = [checks.integer("stop_token_ids", id, 0, size - 1) for id in stop_token_ids]
    if tokenizer is not None:
        check_tokenizer(tokenizer, model, size)
    family, config = find_family(model, size)
    architecture = family.architecture(model)
    values = {
        "architectures": [architecture],
        "model_type": family.model_type,
        "vocab_size": size,
        "torch_dtype": dtype,
        "bos_token_id": None,
        "eos_token_id": stop_token_ids or None,
        **write_config(family, config),
    }
    with atomic_folder(folder) as temporary:
        (temporary / "config.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
        _write_tensors(temporary, family.of(config), architecture, _merged(model), DTYPES[dtype], max_shard_bytes)
        if tokenizer is not None:
            write_tokenizer_files(temporary, tokenizer)
    return architecture


def _vocabulary_size(model):
    if isinstance(model, Ensemble):
        raise PretrainedError(f"{model.name} is an ensemble, which no class of transformers is; save its members.")
    embedding = getattr(model, "embedding", None)
    for layer in [embedding, *getattr(model, "layers", [])]:
        if isinstance(layer, keras.layers.Embedding):
            return layer.input_dim
    raise PretrainedError(f"{model.name} has no embedding of ids; expected a model of {_nearest(model)}.")


def find_family(model: keras.Model, vocabulary_size: int) -> tuple[Family, object]:
    """Return the family of a model, and the config that builds it."""
    if getattr(model, "document_token", None) is not None:
        raise PretrainedError(
            f"{model.name} begins anew at document_token={model.document_token}, which no class of transformers does; "
            "set model.document_token = None to save a model of single documents."
        )
    if getattr(model, "quantization", None) is not None:
        raise PretrainedError(
            f"{model.name} is quantized in {model.quantization}; expected a model of floats, saved before `quantize`."
        )
    near = None
    for family in FAMILIES.values():
        try:
            config = family.describe(model)
            build = functools.partial(family.build_models, config, vocabulary_size, None, family.architecture(model))
            same = same_function(model, without_memory(build)[0])
        except (ValueError, AttributeError, TypeError, LookupError, NotImplementedError):
            continue  # another family's layers
        changes = differences(family, config) if same else ["the layers of " + _nearest(model)]
        if not changes:
            return family, config
        near = min(near or (math.inf,), (not same, len(changes), family.model_type, changes))
    if near is None:
        raise PretrainedError(
            f"No class of transformers computes what {model.name} does; the nearest is keras_seq's {_nearest(model)}: "
            f"train one of {', '.join(dict.fromkeys(f.config.__name__ for f in FAMILIES.values()))}, for instance by "
            "keras-seq train TEXT --model llama (or gpt2, mamba, mamba2, qwen3_5)."
        )
    *_, model_type, changes = near
    raise PretrainedError(
        f"No class of transformers computes what {model.name} does; {model_type!r} would, with {', '.join(changes)}."
    )


def _nearest(model):
    if isinstance(model, EncoderDecoder):
        return "T5Config"
    if any(isinstance(layer, GriffinRecurrentBlock) for layer in iter_layers(model)):
        return "RecurrentGemmaConfig"
    if any(isinstance(layer, GatedDeltaNet) for layer in iter_layers(model)):
        return "Qwen35Config"
    if any(isinstance(layer, TransformerBlock) for layer in iter_layers(model)):
        return "LlamaConfig"
    return "MambaConfig" if isinstance(model, LanguageModel) else "BertConfig"


def _merged(model):
    """Return the variables of a model by path, with the sums of matrices and adapters instead of either."""
    merged, variables = merged_values(model), variables_of([model])
    return {path: merged.get(id(v), v) for path, v in variables.items() if not is_adapter(v)}


def _finite(name, values, dtype):
    """Return values in a dtype; raise an error for those that are infinite there, or not numbers."""
    if not np.isfinite(values).all():
        raise PretrainedError(f"The tensor {name!r} has values that are NaN or infinite; expected a trained model.")
    if overflows(values, dtype):
        raise PretrainedError(
            f"The tensor {name!r} has values of up to {np.abs(values).max():.3g}, which dtype={np.dtype(dtype).name!r} "
            f"cannot hold; expected dtype={'bfloat16' if dtype is np.float16 else 'float32'!r}."
        )
    return values.astype(dtype, copy=False)


def _write_tensors(folder, family, architecture, variables, dtype, max_shard_bytes):
    shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
    prefix = family.base_prefix if architecture.endswith("Model") else ""
    tensors = {name.removeprefix(prefix): tensor for name, tensor in expected_tensors(family, shapes).items()}
    num_bytes = {
        name: math.prod(tensor_shape(tensor, [shapes[path] for path in tensor.variables])) * np.dtype(dtype).itemsize
        for name, tensor in tensors.items()
    }
    shards, size = [[]], 0  # names of the tensors of each file; bytes of the last one
    for name in tensors:
        if shards[-1] and size + num_bytes[name] > max_shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += num_bytes[name]
    files = [f"model-{n + 1:05}-of-{len(shards):05}.safetensors" for n in range(len(shards))]
    files = files if len(shards) > 1 else [SINGLE]
    for file, names in zip(files, shards, strict=True):
        arrays = {name: _finite(name, tensor_of(tensors[name], variables), dtype) for name in names}
        write_tensors(folder / file, arrays, {"format": "pt"})
    if len(shards) > 1:
        weight_map = {name: file for file, names in zip(files, shards, strict=True) for name in names}
        index = {"metadata": {"total_size": sum(num_bytes.values())}, "weight_map": weight_map}
        (folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")

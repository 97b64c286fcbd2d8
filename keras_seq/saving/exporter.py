"""Export a language model with its state, to a file that needs neither keras_seq nor Keras.

    format         written by      runs in
    "onnx"         PyTorch         onnxruntime, in the browser too          `OnnxModel`
    "litert"       TensorFlow      LiteRT (TensorFlow Lite)                 `LiteRTModel`
    "saved_model"  TensorFlow      TensorFlow
    "torch"        PyTorch         PyTorch, as a program of torch.export
    "page"         TensorFlow      a browser: one HTML file

The state is an input and an output, a tensor for each of its parts. On another backend of Keras than the one that
writes the format, the model is saved and loaded by a process of its own. A file of ONNX or LiteRT is tried before it
gets its name: what its runtime computes has to be what the model computes.
"""

import dataclasses
import functools
import importlib.util
import json
import math
import os
import pathlib
import re
import sys
import threading
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

import keras_seq
from keras_seq import checks
from keras_seq.files import atomic_folder, atomic_write, is_free
from keras_seq.layers import MultiHeadSelfAttention, PreNormResidual, TransformerBlock
from keras_seq.layers.attention.positions import AdditivePositions
from keras_seq.layers.introspection import check_tokenizer, iter_layers
from keras_seq.models import Ensemble, LanguageModel
from keras_seq.models.ensemble import number_of_outputs
from keras_seq.models.exported_model import LiteRTModel, OnnxModel, named_tensors, state_parts
from keras_seq.saving import page
from keras_seq.saving.keras_file import in_float32
from keras_seq.saving.other_process import write_in_another_process
from keras_seq.tokenizers import CharacterTokenizer, Tokenizer, tokenizer_from_config

SUFFIXES = {"onnx": ".onnx", "litert": ".tflite", "saved_model": "", "torch": ".pt2", "page": ".html"}
PACKAGES = {  # the first is the backend of Keras that writes the format
    "onnx": ("torch", "onnx", "onnxscript", "onnxruntime"),
    "litert": ("tensorflow", "ai_edge_litert"),
    "saved_model": ("tensorflow",),
    "torch": ("torch",),
    "page": ("tensorflow",),
}
BACKENDS = {format: packages[0] for format, packages in PACKAGES.items()}
MAX_BYTES = {"onnx": 2 << 30, "litert": 2 << 30, "page": 1 << 26}  # of Protocol Buffers, FlatBuffers, what a page bears
_LOCK = threading.Lock()  # torch's exporter is one for a process
TOLERANCE = {None: 1e-4, "int8": 0.5}  # of the largest number of a tensor, in a file that is tried


def export(
    model: keras.Model,
    path: str | os.PathLike,
    format: str = "onnx",
    *,
    tokenizer=None,
    quantization: str | None = None,
    batch_size: int = 1,
    lengths: Sequence[int] | None = None,
    capacity: int | None = None,
) -> None:
    """Write a language model as one file, or as a SavedModel folder, with its state as inputs and outputs.

    ```python
    keras_seq.export(model, "model.onnx", tokenizer=tokenizer)
    model = keras_seq.models.OnnxModel("model.onnx")  # has step, and __call__; generate, score and stream take it
    keras_seq.export(model, "model.tflite", format="litert", quantization="int8", lengths=(64, 256))
    ```

    Inputs are `ids`, int32, and the state by the names of its parts, such as `state_0_key`; outputs are `logits` and
    the new state, `new_state_0_key`. Names, shapes and first values of the state, the tokenizer, the context length and
    the version are JSON in the file: in ONNX's metadata under "keras_seq", elsewhere in `keras_seq.json`, which a
    LiteRT file has in the zip archive at its end, a SavedModel in `assets.extra`, a torch file as an extra file.

    Args:
        model: A built `LanguageModel` or `Ensemble`. One in half precision is written to compute in float32.
        path: Path to write to, ending in .onnx, .tflite, .pt2 or .html; of a new folder for a SavedModel.
        format: `"onnx"`: any number of rows and positions. `"litert"`: `batch_size` rows; a step, and a pass for each
            of the lengths. `"saved_model"`: a step and a call of any length. `"torch"`: a step. `"page"`: an HTML page
            in which the model reads and writes; see also `export_page`.
        tokenizer: The tokenizer of the ids, which the file then holds; a SavedModel with a `CharacterTokenizer` also
            generates text, and a page needs one.
        quantization: `"int8"` for weights in 8 bits, in ONNX, LiteRT and a page; the inputs of their matrices are
            rounded too, by the runtime, but not in a page. None for float32.
        batch_size: Number of rows in a LiteRT file.
        lengths: Numbers of positions of the passes in a LiteRT file, at most the context length; by default 64, and
            none in int8, where the graph of a pass would be a tenth of the file.
        capacity: Number of positions that caches hold; the context length by default.

    Raises:
        ValueError: The format cannot hold this model, an argument is out of its range, there is a file at the path, or
            what was written does not compute what the model computes.
        ImportError: A package that writes or tries the format is not installed.
    """
    checks.one_of("format", format, BACKENDS)
    if format == "page":
        return export_page([model], path, [tokenizer], quantization=quantization, capacity=capacity)
    path = pathlib.Path(path)
    _check_path(path, format)
    checks.one_of("quantization", quantization, (None, "int8"))
    if quantization is not None and format not in ("onnx", "litert"):
        raise ValueError(f'quantization={quantization!r}; expected None with format="{format}".')
    model = _checked(model, format)
    if tokenizer is not None:
        if not isinstance(tokenizer, Tokenizer):
            raise ValueError(f"tokenizer={tokenizer!r}; expected a tokenizer of keras_seq.tokenizers, or None.")
        check_tokenizer(tokenizer, model)
    options = {
        "quantization": quantization,
        "batch_size": checks.positive_integer("batch_size", batch_size),
        "lengths": _checked_lengths(lengths, quantization),
        "capacity": None if capacity is None else checks.positive_integer("capacity", capacity),
    }
    _check_packages(format)
    with _LOCK, (atomic_folder if format == "saved_model" else atomic_write)(path) as temporary:
        _write_on_its_backend(model, temporary, format, tokenizer, options)
        if format in ("onnx", "litert"):
            _try(model, temporary, format, quantization, capacity)


def export_page(
    models: Sequence[keras.Model],
    path: str | os.PathLike,
    tokenizers: Sequence[CharacterTokenizer],
    *,
    titles: Sequence[str] | None = None,
    descriptions: Sequence[str] | None = None,
    title: str = "Living models",
    text: str = "",
    quantization: str | None = None,
    capacity: int | None = None,
) -> None:
    """Write one HTML page in which one or two language models read and write text, beside each other.

    ```python
    keras_seq.saving.export_page([lstm, transformer], "page.html", [tokenizer, tokenizer], text="To be, or")
    ```

    The page has its models inside and needs no server, network or library. It writes what `keras_seq.generate` writes
    with the same seed.

    Args:
        models: One or two built models with a step.
        path: Path to write to, ending in .html.
        tokenizers: Of each model.
        titles: Of each model; its name by default.
        descriptions: Of each model: what it was trained on, with which loss; its number of parameters by default.
        title: Of the page.
        text: That the models have read when the page is opened.
        quantization: `"int8"` for weights in 8 bits: a quarter of the size. None for float32.
        capacity: Number of positions that caches hold; the context length by default.

    Raises:
        ValueError: A model has an operation that the page does not know, or an argument is out of its range.
        ImportError: TensorFlow, which writes the graph, is not installed.
    """
    path = pathlib.Path(path)
    _check_path(path, "page")
    checks.one_of("quantization", quantization, (None, "int8"))
    if not isinstance(models, Sequence) or not isinstance(tokenizers, Sequence):
        raise ValueError("models and tokenizers are lists: expected export_page([model], path, [tokenizer]).")
    if not 1 <= len(models) <= 2 or len(tokenizers) != len(models):
        raise ValueError(
            f"{len(models)} models and {len(tokenizers)} tokenizers; expected one or two models, each with its own."
        )
    named = {"title": title, "text": text}
    for name, texts in {"titles": titles, "descriptions": descriptions}.items():
        if texts is not None and len(texts) != len(models):
            raise ValueError(f"{len(texts)} {name} for {len(models)} models; expected one for each, or None.")
        named |= {f"{name}[{n}]": words for n, words in enumerate(texts or ())}
    for name, words in named.items():
        if not isinstance(words, str) or any("\ud800" <= character <= "\udfff" for character in words):
            raise ValueError(f"{name}={words!r}; expected a str without half characters.")
    if capacity is not None:
        checks.positive_integer("capacity", capacity)
    models = [_checked(model, "page") for model in models]
    for model, tokenizer in zip(models, tokenizers, strict=True):
        if not all(np.isfinite(ops.convert_to_numpy(variable)).all() for variable in model.trainable_variables):
            raise ValueError(
                f"{model.name} has weights that are not finite: it has diverged; use an earlier checkpoint."
            )
        if not isinstance(tokenizer, CharacterTokenizer):
            raise ValueError(f"tokenizer={tokenizer!r}; a page reads characters: expected a CharacterTokenizer.")
        check_tokenizer(tokenizer, model)
    _check_packages("page")
    options = {"quantization": quantization, "batch_size": 1, "lengths": (), "capacity": capacity}
    with _LOCK, atomic_write(path) as temporary:
        parts = []
        for model, tokenizer in zip(models, tokenizers, strict=True):
            _write_on_its_backend(model, temporary, "page", tokenizer, options)
            parts.append(json.loads(temporary.read_text(encoding="utf-8")))
        titles = [model.name for model in models] if titles is None else titles
        if descriptions is None:
            descriptions = [f"{model.count_params():,} parameters" for model in models]
        temporary.write_text(page.page(parts, titles, descriptions, title, text), encoding="utf-8")


def _check_packages(format):
    for package in PACKAGES[format]:
        if importlib.util.find_spec(package) is None:
            names = " ".join(name.replace("_", "-") for name in PACKAGES[format])
            raise ImportError(f'format="{format}" needs {package.replace("_", "-")}: pip install {names}.')


def _write_on_its_backend(model, path, format, tokenizer, options):
    backend = BACKENDS[format]
    try:
        if keras.backend.backend() == backend:
            _write(model, path, format, tokenizer, **options)
        elif reason := write_in_another_process(model, path, format, backend, tokenizer, options):
            raise ValueError(f"{reason} (in a process with KERAS_BACKEND={backend})")
    except OSError:  # of the disk
        raise
    except Exception as error:  # each exporter has errors of its own, of hundreds of lines
        raise ValueError(f"{model.name} cannot be exported to {format}: {_sentence(error)}") from error


def _sentence(error):
    """Return the line of an error message that says what is wrong."""
    lines = [re.sub(r"\x1b\[\d*m", "", line).strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Exception encountered when calling")]  # Keras's
    return (said or [type(error).__name__])[0][:300]


def _check_path(path, format):
    suffix = SUFFIXES[format]
    if suffix and path.suffix != suffix:
        raise ValueError(f'{path}: expected a name that ends in {suffix} with format="{format}".')
    if not is_free(path) or (suffix and path.exists()):
        raise ValueError(f"{path} exists already; expected the name of a new {'file' if suffix else 'folder'}.")
    if suffix and not path.absolute().parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist.")
    if format == "saved_model" and "[" in str(path.absolute()):
        raise ValueError(f"{path.absolute()} has a '[': TensorFlow could not load it; expected another path.")


def _checked(model, format):
    """Return the model, or its copy in float32 if it computes in half precision."""
    if not all(hasattr(model, name) for name in ("step", "get_initial_state", "context_length", "variables")):
        name = getattr(model, "name", type(model).__name__)
        raise ValueError(f"{name} has no step and state; expected a LanguageModel. Other models have Model.export.")
    if not model.built:
        raise ValueError(f"{model.name} is not built; expected a model with weights.")
    for layer in iter_layers(model, attributes=True):
        if (getattr(layer, "quantization_mode", None) or getattr(layer, "matrix_mode", None)) not in (None, "lora"):
            raise ValueError(
                f"{layer.name} has weights in 8 or 4 bits; expected float32: export the model before `quantize`, with "
                'quantization="int8".'
            )
    size = sum(math.prod(variable.shape) * 4 for variable in model.variables)
    if size > (limit := MAX_BYTES.get(format, math.inf)):
        raise ValueError(f'{model.name} has {size:,} bytes of weights; expected at most {limit:,} in "{format}".')
    if any(layer.compute_dtype in ("bfloat16", "float16") for layer in iter_layers(model, attributes=True)):
        model = in_float32(model)
    for layer in iter_layers(model, attributes=True):
        if layer.compute_dtype != "float32":
            raise ValueError(
                f"{layer.name} computes in {layer.compute_dtype}; expected float32: give the weights to a model that "
                'is built with dtype="float32", and export that.'
            )
    return model


def _checked_lengths(lengths, quantization):
    if lengths is None:
        lengths = (64,) if quantization is None else ()
    if not isinstance(lengths, Sequence) or isinstance(lengths, str):
        raise ValueError(f"lengths={lengths!r}; expected a list of numbers of positions, such as (64,).")
    return [checks.positive_integer("lengths", length) for length in lengths]


def _write(model, path, format, tokenizer, quantization, batch_size, lengths, capacity):
    """Write the file, on the backend that can."""
    parts, structure = state_parts(model, capacity)
    has_capacity = capacity is not None and parts != state_parts(model, capacity + 1)[0]  # an LSTM's state has none
    limits = (model.context_length, capacity if has_capacity else None)
    limit = min((length for length in limits if length is not None), default=None)
    if format == "litert" and any(0 in part.shape for part in parts):
        raise ValueError("its state has no numbers, and LiteRT holds no tensor without any")
    lengths = sorted({min(length, limit or length) for length in lengths} - {1})
    metadata = {
        "name": model.name,
        "version": keras_seq.__version__,
        "vocabulary_size": number_of_outputs(model),
        "context_length": limit,
        "document_token": getattr(model, "document_token", None),
        "state": [dataclasses.asdict(part) for part in parts],
        "tokenizer": None if tokenizer is None else tokenizer.get_config(),
        "quantization": quantization,
        **({"batch_size": batch_size} if format == "litert" else {}),
    }
    if format == "page":
        from keras_seq.saving.step_graph import step_graph  # here, as other backends do without TensorFlow

        data = page.model_data(*step_graph(model, parts, structure), metadata, quantization)
        path.write_text(json.dumps(data), encoding="utf-8")
        return
    args = model, parts, structure, json.dumps(metadata), path
    parallel = _is_parallel(model) and (limit is None or limit > 2)
    if BACKENDS[format] == "torch":
        from keras_seq.saving import torch as writer  # here, as other backends do without it
    else:
        from keras_seq.saving import tensorflow as writer
    if format == "onnx":
        writer.write_onnx(*args, parallel, limit, quantization)
    elif format == "torch":
        writer.write_torch(*args)
    elif format == "litert":
        writer.write_litert(*args, parallel, batch_size, lengths, quantization)
    else:
        writer.write_saved_model(*args, tokenizer)


def _is_parallel(model):
    """Return whether the state is caches of attention alone, so that no position waits for the one before it."""
    known = MultiHeadSelfAttention, AdditivePositions, TransformerBlock, PreNormResidual, LanguageModel, Ensemble
    has_documents = any(getattr(layer, "document_token", None) is not None for layer in iter_layers(model))
    with_state = [layer for layer in iter_layers(model, attributes=True) if hasattr(layer, "get_initial_state")]
    return not has_documents and all(isinstance(layer, known) for layer in with_state)


def main():
    """Write what `write_in_another_process` asks for; the last line on standard error says why not."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()  # when the other has ended
    saved, path, format, config, options, paths, modules = json.loads(pathlib.Path(sys.argv[2]).read_text("utf-8"))
    sys.path += [part for part in paths if part not in sys.path]
    for name in modules:  # those of somebody's layers register them
        importlib.import_module(name)
    try:
        model = keras.saving.load_model(saved)
        tokenizer = None if config is None else tokenizer_from_config(config)
        if format == "saved_model":
            pathlib.Path(path).mkdir()
        _write(model, pathlib.Path(path), format, tokenizer, **options)
    except Exception as error:
        text = _sentence(error)
        if "Could not locate class" in text:
            text = "it has a class of the running program: set the backend there, or put the class into a module"
        sys.exit(text)


def _try(model, path, format, quantization, capacity):
    """Raise a ValueError unless the file computes some positions as the model does, one by one and together."""
    try:
        exported = (OnnxModel if format == "onnx" else LiteRTModel)(path)
        count = min(5, exported.context_length or 5)
        lengths = {count, *getattr(exported, "runners", ())}  # of a LiteRT file, one for each length
        ids = np.random.default_rng(0).integers(exported.vocabulary_size, size=(2, max(lengths))).astype("int32")
        start = functools.partial(model.get_initial_state, 2, *(() if capacity is None else (capacity,)))
        for length in lengths:
            logits, state = model(ids[:, :length], state=start(), training=False, return_state=True)
            actual, other = exported(ids[:, :length], return_state=True)
            _compare(f"logits of {length} positions", actual, logits, quantization)
            if length < (exported.context_length or np.inf):  # what unused slots of the states hold may differ
                logits, actual = model.step(ids[:, :1], state)[0], exported.step(ids[:, :1], other)[0]
                _compare(f"logits after {length} positions", actual, logits, quantization)
        state, other = start(), exported.get_initial_state(2)
        for t in range(count):
            logits, state = model.step(ids[:, t : t + 1], state)
            actual, other = exported.step(ids[:, t : t + 1], other)
            _compare("logits", actual, logits, quantization)
        for name, tensor in named_tensors(state).items():
            _compare(name, other[name], tensor, quantization)
    except OSError:  # of the disk
        raise
    except Exception as error:  # onnxruntime has a class for each of its status codes, all of them private
        raise ValueError(f"{model.name} cannot be exported to {format}: {_sentence(error)}") from error


def _compare(name, actual, expected, quantization):
    expected = ops.convert_to_numpy(expected)
    if not np.isfinite(expected).all():
        raise ValueError(f"the model's {name} are not finite: its weights have diverged.")
    largest, difference = (np.abs(x, dtype="float64").max(initial=0) for x in (expected, actual - expected))
    if not difference <= TOLERANCE[quantization] * max(1e-2, largest):
        raise ValueError(
            f"{name} of the file differ by {difference:.2g} from those of the model, of which the largest is "
            f"{largest:.2g}."
        )

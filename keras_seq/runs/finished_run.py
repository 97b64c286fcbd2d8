"""Load a finished run for a tool, find its names and an example text, and write the page in which its model lives."""

import io
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Literal

from keras_seq import pretrained
from keras_seq.data import CorpusError, load_corpus
from keras_seq.data.builtin_texts import BUILTIN_TEXTS
from keras_seq.evaluation.score import score_text
from keras_seq.models import LiteRTModel, OnnxModel
from keras_seq.models.exported_model import ExportedModel
from keras_seq.pretrained.load import how_to_download
from keras_seq.reports.pages import describe_run, name_in_config, run_label
from keras_seq.saving import export_page
from keras_seq.saving.page import round_weights
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.base import Tokenizer
from keras_seq.training import load_language_model, load_run
from keras_seq.training.run_folder import is_hugging_face, load_result

RUNTIMES = {".onnx": OnnxModel, ".tflite": LiteRTModel}
Unknown = Literal["error", "drop"]  # --unknown: name the characters that a model does not know, or leave them out
MAX_CHARACTERS_TO_NAME = 5
PASSAGE_CHARACTERS = 120
NEUTRAL_TEXT = "The first line is not the last one, and this is the third."


def load_run_or_folder(path: pathlib.Path) -> pretrained.Pretrained:
    """Load the model and the tokenizer of a finished run, of a Hugging Face folder, or of an ONNX or LiteRT file."""
    if path.suffix in RUNTIMES:
        model, tokenizer = load_exported(path)
        return pretrained.Pretrained(model, tokenizer, None, model.vocabulary_size)
    if not path.is_dir() and not path.name.endswith((".keras", ".json")):
        problem = "is not a folder" if path.exists() else "does not exist"
        expected = f"the folder of a finished run, or a Hugging Face folder: {how_to_download(path)}"
        raise ValueError(f"{path} {problem}; expected {expected}.")
    has_weights = any((path / name).exists() for name in ("model.safetensors", "model.safetensors.index.json"))
    if not has_weights and not is_hugging_face(path):
        model, tokenizer = load_run(path)
        return pretrained.Pretrained(model, tokenizer, None, tokenizer.vocabulary_size)
    loaded = pretrained.load(path)
    if loaded.tokenizer is None:
        raise ValueError(f"{path} has no tokenizer; expected a tokenizer.json beside its config.json.")
    return loaded


def load_exported(path: pathlib.Path) -> tuple[ExportedModel, Tokenizer]:
    """Return the model of an ONNX or LiteRT file, whose suffix is in RUNTIMES, and its tokenizer."""
    model = RUNTIMES[path.suffix](path)
    if model.tokenizer is None:
        raise ValueError(f"{path} has no tokenizer; expected a file that was exported with one.")
    return model, model.tokenizer


def validation_text(run: pathlib.Path) -> str | None:
    """Return the run's validation text if its corpus is built in, else None: no file that a run names is opened."""
    try:
        corpus = name_in_config(run, "corpus")
        return load_corpus(corpus).split()[1] if corpus in BUILTIN_TEXTS else None
    except CorpusError:
        return None


def example_text(run: pathlib.Path) -> str:
    """Return the beginning of a paragraph of the run's validation text; a sentence unless its corpus is built in."""
    text = validation_text(run) or NEUTRAL_TEXT
    return (text.partition("\n\n")[2] or text)[:PASSAGE_CHARACTERS]


def handle_unknown(text: str, tokenizer: Tokenizer, how: Unknown) -> str:
    r"""Return the text without its unknown characters; raise a ValueError that names them if `how` is "error".

    Where `\r` is unknown, `\r\n` becomes `\n` first, as in a corpus.
    """
    if not isinstance(tokenizer, CharacterTokenizer) or tokenizer.oov_token is not None:
        return text  # every text has ids
    known = set(tokenizer.characters)
    text = text if "\r" in known else text.replace("\r\n", "\n")
    unknown = [*dict.fromkeys(character for character in text if character not in known)]
    if unknown and how == "error":
        names = ", ".join(f"{character!r} (U+{ord(character):04X})" for character in unknown[:MAX_CHARACTERS_TO_NAME])
        more = f" and {len(unknown) - MAX_CHARACTERS_TO_NAME} more" if len(unknown) > MAX_CHARACTERS_TO_NAME else ""
        raise ValueError(f"The model does not know {names}{more}: change the text, or add --unknown drop.")
    return "".join(character for character in text if character in known)


def read_standard_input() -> str:
    r"""Return all of standard input, as `load_corpus` returns a file: `\r\n` is `\n`, without a byte order mark."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(newline="")  # leave line ends as they are
    try:
        text = sys.stdin.read()
        text.encode()  # where the locale is C, bytes that are not UTF-8 have become surrogates
    except UnicodeError as error:
        raise ValueError(f"Standard input is not UTF-8 from offset {error.start} on: convert it to UTF-8.") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


NUM_READ, NUM_SCORED = 360, 4096  # characters of the first text, and of that by which the weights are compared


def write_living_page(runs: Sequence[pathlib.Path], path: str | os.PathLike, quantization: str | None = "int8") -> None:
    """Write the page of one or two finished runs to a new .html file; weights are in int8, or with None in float32."""
    models, tokenizers = zip(*map(load_language_model, runs), strict=True)
    names = [name_in_config(run, "model") or model.name for run, model in zip(runs, models, strict=True)]
    if len({*names}) < len(names):
        names = [run_label(run) for run in runs]
    export_page(
        models,
        path,
        tokenizers,
        titles=names,
        descriptions=[*map(_description, runs, models)],
        title=" and ".join(names),
        text=_first_text(runs[0], tokenizers[0]),
        quantization=quantization,
    )


def _first_text(run, tokenizer):
    """Return whole lines of the run's validation text, from a paragraph on, or what there is in their place."""
    text = validation_text(run) or ""
    text = (text.partition("\n\n")[2] or text)[:NUM_READ]
    return handle_unknown((text.rpartition("\n")[0] or text).rstrip() or example_text(run), tokenizer, "drop")


def _description(run, model):
    """Return "109,032 parameters, trained on docstrings, 2.089 bits per character of its validation text"."""
    trained = describe_run(run).partition(" trained on ")[2]
    parts = [f"{model.count_params():,} parameters", *([f"trained on {trained}"] if trained else [])]
    result = load_result(run) or {}
    loss = result.get("val_bits_per_character_streaming", result.get("val_bits_per_character"))
    if isinstance(loss, float):
        parts.append(f"{loss:.3f} bits per character of its validation text")
    return ", ".join(parts)


def cost_of_rounding(run: pathlib.Path) -> str:
    """Return a sentence that says by how much the loss of a run's model rises with weights in 8 bits."""
    model, tokenizer = load_language_model(run)
    texts = validation_text(run), (load_result(run) or {}).get("sample"), example_text(run)
    texts = (handle_unknown(str(text or ""), tokenizer, "drop")[:NUM_SCORED] for text in texts)
    if (text := next((text for text in texts if len(text) > 1), None)) is None:
        return f"{name_in_config(run, 'model') or model.name}: its weights are in 8 bits."
    exact = score_text(model, tokenizer, text).bits_per_character
    round_weights(model)
    rounded = score_text(model, tokenizer, text).bits_per_character
    return (
        f"{name_in_config(run, 'model') or model.name}: {rounded:.4f} bits per character with weights in 8 bits, "
        f"{exact:.4f} in float32 ({len(text):,} characters)."
    )

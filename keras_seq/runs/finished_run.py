"""Read what the tools need: a finished run, its names for pages, an example text, texts without unknown characters.

A run folder may come from anybody: names are text only, and no file that they name is opened.
"""

import io
import pathlib
import sys
from typing import Literal

from keras_seq import pretrained
from keras_seq.data import CorpusError, load_corpus
from keras_seq.data.builtin_texts import BUILTIN_TEXTS
from keras_seq.models import LiteRTModel, OnnxModel
from keras_seq.models.exported_model import ExportedModel
from keras_seq.pretrained.load import how_to_download
from keras_seq.reports.pages import name_in_config
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.base import Tokenizer
from keras_seq.training import load_run

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
    if not any((path / name).exists() for name in ("model.safetensors", "model.safetensors.index.json")):
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

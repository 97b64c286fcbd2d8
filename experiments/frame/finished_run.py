"""What a finished run says of itself: names for pages, and a text like those that it was trained on.

A run folder may come from anybody: names are text only, and no file that they name is opened.
"""

import pathlib

from keras_seq.data import CorpusError, load_corpus
from keras_seq.training import checksummed_json

BUILT_IN_CORPORA = ("docstrings", "pydoc", "shakespeare")
PASSAGE_CHARACTERS = 120
NEUTRAL_TEXT = "The first line is not the last one, and this is the third."


def run_label(run: pathlib.Path) -> str:
    """Return the last two parts of a run's path: TIME/RUN."""
    return "/".join(run.resolve().parts[-2:])


def describe_run(run: pathlib.Path) -> str:
    """Return "the lstm trained on docstrings", as far as config.json names the model and the corpus."""
    model, corpus = _name(run, "model"), _name(run, "corpus")
    return f"the {model or 'model'}{f' trained on {pathlib.PurePath(corpus).name}' if corpus else ''}"


def example_text(run: pathlib.Path) -> str:
    """Return the beginning of a paragraph of the run's validation text; a sentence unless its corpus is built in."""
    try:
        corpus = _name(run, "corpus")
        text = load_corpus(corpus).split()[1] if corpus in BUILT_IN_CORPORA else NEUTRAL_TEXT
    except CorpusError:
        text = NEUTRAL_TEXT
    return (text.partition("\n\n")[2] or text)[:PASSAGE_CHARACTERS]


def _name(run, key):
    path = run / "config.json"
    value = checksummed_json.read(path).get(key) if path.is_file() else None
    return str(value.get("name", "")) if isinstance(value, dict) else ""

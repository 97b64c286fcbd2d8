"""What a finished run says of itself: names for pages, and a passage of its validation text.

A run folder may come from anybody: names are text only, and no file that they name is opened.
"""

import pathlib

from keras_seq.data import CorpusError, load_corpus
from keras_seq.training import checksummed_json

BUILT_IN_CORPORA = ("docstrings", "pydoc", "shakespeare")
PASSAGE_CHARACTERS = 120


def run_label(run: pathlib.Path) -> str:
    """Return the last two parts of a run's path: TIME/RUN."""
    return "/".join(run.resolve().parts[-2:])


def describe_run(run: pathlib.Path) -> str:
    """Return "the lstm trained on docstrings", as far as config.json names the model and the corpus."""
    model, corpus = (_saved(run, key).get("name") for key in ("model", "corpus"))
    return f"the {model or 'model'}{f' trained on {pathlib.PurePath(str(corpus)).name}' if corpus else ''}"


def validation_passage(run: pathlib.Path) -> str | None:
    """Return the beginning of a paragraph that the run was validated on; None unless its corpus is built in."""
    saved = _saved(run, "corpus")
    if saved.get("name") not in BUILT_IN_CORPORA:
        return None
    try:
        corpus = load_corpus(saved["name"], strip_whitespace=saved.get("strip_whitespace") is True)
    except CorpusError:
        return None
    text = corpus.split()[1]
    is_same = corpus.sha256 == saved.get("sha256")  # `docstrings` and `pydoc` differ between Python versions
    return (text.partition("\n\n")[2] or text)[:PASSAGE_CHARACTERS] if is_same else None


def _saved(run, key):
    path = run / "config.json"
    value = checksummed_json.read(path).get(key) if path.is_file() else None
    return value if isinstance(value, dict) else {}

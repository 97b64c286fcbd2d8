"""What reads files, each as a function of the bytes of a file, and files that it reads well, to be changed.

A reader may give back what it read, or refuse it by a ValueError of one line. Anything else is a fault.
"""

import atexit
import codecs
import dataclasses
import io
import json
import pathlib
import shutil
import tempfile
import zipfile

import numpy as np

from experiments.common.jobs import load_config
from experiments.compare import budgets as compare_budgets
from experiments.compare.settings import CompareConfig
from keras_seq import tokenizers
from keras_seq.data import load_corpus
from keras_seq.models import LSTMConfig
from keras_seq.saving import save_model
from keras_seq.saving.keras_file import load_untrusted_model
from keras_seq.training import checkpoints, run_folder

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
COMPARE = CompareConfig(models=("lstm",))
TEXT = "to be or not to be, that is the question\n" * 3


def _written(name, data):
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _resealed(name, data):
    """Writes the JSON with the seal that fits it, or what is fuzzed would only be the seal."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return _written(name, data)
    path = _written(name, b"")
    run_folder.write_checksummed(path, {key: part for key, part in value.items() if key != run_folder.CHECKSUM})
    return path


def _saved(save):
    save(FOLDER / "saved")
    return (FOLDER / "saved").read_bytes()


def tokenizer(data):
    """Reads a tokenizer; what it reads, it writes the same, and it keeps a text."""
    path = _written("tokenizer.json", data)
    found = tokenizers.load_tokenizer(path)
    found.save(path)
    assert tokenizers.load_tokenizer(path) == found
    if isinstance(found, tokenizers.BytePairTokenizer):
        assert found.decode(found.encode(TEXT)) == TEXT


def checkpoint(data):
    """Reads a checkpoint of at most a mebibyte."""
    checkpoints.read_arrays(_written("step-00000001.safetensors", data), 1 << 20)


def settings(data):
    """Read the config of a run."""
    run = _resealed("runs/lstm-seed0/config.json", data).parent
    assert isinstance(load_config(run.parent, CompareConfig), CompareConfig)


def step_seconds(data):
    """Reads the measured times of a comparison."""
    assert [*compare_budgets.step_seconds(COMPARE, _resealed("seconds.json", data), {"lstm": None}, 9, None)] == [
        "lstm"
    ]


def corpus(data):
    """Reads a text, and takes it through its characters and back."""
    text = load_corpus(_written("text.txt", data)).text
    assert text.encode() == data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    vocabulary = tokenizers.CharacterTokenizer.from_text(text)
    assert vocabulary.decode(vocabulary.encode(text)) == text


def archive(data):
    """Reads a model."""
    load_untrusted_model(_written("model.keras", data))


def archive_config(data):
    """Reads a model with honest weights and another config."""
    members = {**ARCHIVE, "config.json": data}
    archive(_zipped(members))


def _zipped(members):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as written:
        for name, content in members.items():
            written.writestr(name, content)
    return memory.getvalue()


def _archive():
    save_model(LSTMConfig(3, 4).build_model(5), FOLDER / "honest.keras")
    with zipfile.ZipFile(FOLDER / "honest.keras") as written:
        return {name: written.read(name) for name in written.namelist()}


ARCHIVE = _archive()
TOKENIZERS = [
    tokenizers.CharacterTokenizer("abc"),
    tokenizers.WordTokenizer.from_text(TEXT),
    tokenizers.WordPieceTokenizer.from_text(TEXT),
    tokenizers.BytePairTokenizer.from_text(TEXT, 270),
]
ARRAYS = {"model/0000/kernel": np.ones((2, 3), "f4"), "optimizer/0000/step": np.array(7)}
TARGETS = {
    "tokenizer": (tokenizer, [_saved(found.save) for found in TOKENIZERS]),
    "checkpoint": (checkpoint, [_saved(lambda path: checkpoints.write_arrays(path, ARRAYS, {"step": "7"}))]),
    "settings": (settings, [json.dumps({"experiment": dataclasses.asdict(COMPARE)}).encode()]),
    "step_seconds": (step_seconds, [json.dumps({"lstm": 0.02}).encode()]),
    "corpus": (corpus, [TEXT.encode(), "\ufeff\u05d0\r\n\U0001f468\u200d\0".encode()]),
    "archive": (archive, [_zipped(ARCHIVE)]),
    "archive_config": (archive_config, [ARCHIVE["config.json"]]),
}


def survives(name, data):
    """Gives the bytes to the reader, and says what it said where it refused them; a fault is an error."""
    reader, _ = TARGETS[name]
    try:
        return reader(data)
    except ValueError as refused:
        return str(refused)

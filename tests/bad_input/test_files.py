"""Files and folders that experiments are told to read: missing, of another kind, empty, torn, not what they say."""

import contextlib
import itertools
import os
import shutil
import socket

import pytest

from keras_seq.data import TokenFiles, load_corpus
from keras_seq.data.prepare import prepare
from keras_seq.models.lora import load_adapters
from keras_seq.saving.keras_file import load_untrusted_model
from keras_seq.tokenizers import CharacterTokenizer, load_tokenizer
from keras_seq.training.run_folder import load_run, within
from tests.bad_input.options import PROGRAMS, REQUIRED, options
from tests.conftest import often

WITH_CORPUS = [name for name, (_, kind) in PROGRAMS.items() if "corpus" in dict(options(kind))]
WITH_RESUME = [name for name, (_, kind) in PROGRAMS.items() if "resume" in dict(options(kind))]
CORPORA = {
    "empty": (b"", "empty"),
    "latin-1": ("Gr\u00fc\u00dfe".encode("latin-1"), "UTF-8"),
    "utf-16": ("text".encode("utf-16"), "UTF-8"),
    "half a character": ("\u20ac".encode()[:2], "UTF-8"),
    "one character": (b"a", "characters|ids|words|text"),
    "short": (b"to be or not", "characters|ids|words|text"),
    "newlines": (b"\n" * 40, "characters|ids|words|text|min_count"),
}


@often(("name", "what"), [*itertools.product(WITH_CORPUS, CORPORA)], [*zip(WITH_CORPUS, itertools.cycle(CORPORA))])
def test_a_corpus_that_cannot_be_used(ends, tmp_path, name, what):
    content, word = CORPORA[what]
    (tmp_path / "text.txt").write_bytes(content)
    said = ends(PROGRAMS[name][0], "--corpus", "text.txt")
    assert "text.txt" in said or any(w in said for w in word.split("|")), said


@pytest.mark.parametrize("name", WITH_CORPUS)
def test_a_corpus_that_is_not_there(ends, tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for value in ("missing.txt", "folder", "pipe", "/dev/zero", ""):
        assert (value or "corpus") in ends(PROGRAMS[name][0], "--corpus", value)


READ = {  # what opens the path of a file or folder; a folder with the path as one of its files, if named
    "corpus": (load_corpus, None),
    "documents": (lambda path: prepare(path, path.parent / "out"), None),
    "ids": (TokenFiles.open, None),
    "index": (TokenFiles.open, "index.json"),
    "ids of a prepared folder": (TokenFiles.open, "00000.bin"),
    "documents of a prepared folder": (TokenFiles.open, "00000.documents"),
    "tokenizer of a prepared folder": (TokenFiles.open, "tokenizer.json"),
    "tokenizer": (load_tokenizer, None),
    "model": (load_untrusted_model, None),
    "run": (load_run, "model.keras"),
    "adapters": (lambda path: load_adapters(None, path), None),
}


def bound_socket(path):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as one:
        one.bind(path.name)  # short: the current folder has it


MAKE = {
    "pipe": os.mkfifo,
    "socket": bound_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": os.mkdir,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A prepared folder."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "a.txt").write_text("to be or not to be")
    prepare(folder / "a.txt", folder / "ids")
    return folder / "ids"


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("name", READ)
def test_what_may_never_end_is_not_opened(refused, prepared, tmp_path, monkeypatch, name, kind):
    """A read of it would hang, so the test would."""
    read, member = READ[name]
    path = tmp_path / "text.txt"
    if member is not None:
        path = tmp_path / "folder" / member
        shutil.copytree(prepared, path.parent)
        path.unlink(missing_ok=True)
    monkeypatch.chdir(path.parent)
    MAKE[kind](path)
    if kind == "folder" and name in ("corpus", "documents", "ids"):
        (path / "sub.txt").mkdir()
    refused(lambda: read(path if member is None else path.parent), path.name if name != "run" else "folder")


SETTINGS = {  # what a config.json may say instead of the settings of an experiment
    "no JSON": b"{",
    "not UTF-8": b"\xff\xfe\xfd",
    "a list": b"[]",
    "a number": b"7",
    "no settings": b"{}",
    "settings of another kind": b'{"experiment": 7}',
    "an unknown option": b'{"experiment": {"colour": "blue"}}',
    "another type": b'{"experiment": {"seed": "0", "log_dir": 7}}',
    "a bad group": b'{"experiment": {"train": 7}}',
    "a bad value in a group": b'{"experiment": {"train": {"log_every": 0}}}',
}


@often("name", WITH_RESUME, ("train", "compare", "shakespeare"))
def test_a_folder_to_go_on_with_that_holds_no_run_of_the_kind(ends, tmp_path, name):
    main = PROGRAMS[name][0]
    assert "missing" in ends(main, "--resume", "missing")
    run = tmp_path / "folder" / "run"
    run.mkdir(parents=True)
    assert "folder" in ends(main, "--resume", "folder")
    for content in SETTINGS.values():
        (run / "config.json").write_bytes(content)
        ends(main, "--resume", "folder")


def run_folder(tmp_path, **files):
    """A folder that looks like that of a run: text files by name, None for a folder."""
    run = tmp_path / "RUN"
    run.mkdir()
    for name, content in files.items():
        (run / name.replace("_", ".")).write_bytes(content)
    return run


RUNS = {
    "empty": {},
    "no tokenizer": {"model_keras": b"PK"},
    "no zip": {"model_keras": b"no zip", "tokenizer_json": b"{}"},
}
READERS = {"export": [], "generate": [], "inspect": [], "score": ["--text", "ab"]}
READERS |= {"date_translation": ["--text", "1 May 1994"], "space_restoration": ["--text", "ab"]}
READERS |= {"masked_lm": ["--text", "[MASK]"]}


def read(ends, name):
    """Has a program read RUN."""
    run = ["RUN"] if name in REQUIRED else ["--run", "RUN"]
    return ends(PROGRAMS[name][0], *run, *READERS[name])


@pytest.mark.parametrize("name", READERS)
def test_a_folder_that_is_no_finished_run(ends, tmp_path, name):
    assert "RUN" in read(ends, name)
    for number, files in enumerate(RUNS.values()):
        run = run_folder(tmp_path, **files)
        assert "RUN" in read(ends, name)
        run.rename(tmp_path / str(number))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("linked", ["model.keras", "tokenizer.json"])
def test_a_run_whose_files_lie_elsewhere(ends, tmp_path, name, linked):
    run = run_folder(tmp_path, model_keras=b"PK", tokenizer_json=b"{}")
    (tmp_path / "secret").write_text("a secret")
    (run / linked).unlink()
    (run / linked).symlink_to("../secret")
    said = read(ends, name)
    assert "leads out" in said
    assert "a secret" not in said


def test_pictures_are_not_written_through_a_link(tmp_path):
    run = run_folder(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (run / "inspect").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="leads out"):
        within(run, run / "inspect")
    assert within(run, run / "other") == run / "other"


TOKENIZER_FILES = {
    "no JSON": b"{",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "a number": b"1" * 5000,
    "no kind": b'{"schema": 2, "registry_name": "other"}',
    "a kind of another kind": b'{"schema": 2, "registry_name": ["bpe"]}',
    "no characters": b'{"schema": 2, "registry_name": "characters", "characters": "", "oov_token": null}',
    "half a character": b'{"schema": 2, "registry_name": "characters", "characters": "\\ud800", "oov_token": null}',
    "too much": b'{"schema": 2, "registry_name": "characters", "characters": "ab", "oov_token": null, "more": 1}',
    "NaN": b"NaN",
    "an older one": b'{"characters": "ab", "unknown": "error"}',
    "a merge twice": b'{"schema": 2, "registry_name": "bpe", "merges": [["a", "b"], ["a", "b"]]}',
    "merges of nothing": b'{"schema": 2, "registry_name": "bpe", "merges": [["x", "yy"]]}',
    "tokens twice": b'{"schema": 2, "registry_name": "words", "vocabulary": ["[UNK]", "a", "a"]}',
}


@pytest.mark.parametrize("content", TOKENIZER_FILES.values(), ids=TOKENIZER_FILES)
def test_a_tokenizer_that_is_none(refused, tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    for load in (load_tokenizer, CharacterTokenizer.load):
        assert len(refused(lambda load=load: load(tmp_path / "tokenizer.json"), "tokenizer.json")) < 600


def test_a_tokenizer_is_read_from_a_small_regular_file_alone(refused, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(lambda: CharacterTokenizer.load(tmp_path / "pipe"), "regular")
    refused(lambda: CharacterTokenizer.load("/dev/zero"), "regular")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)  # bytes that are not there
    refused(lambda: CharacterTokenizer.load(tmp_path / "large"), "bytes")

"""A folder of token ids holds the documents of its inputs, whatever stopped the program that wrote it."""

import contextlib
import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from keras_seq import files as atomic_files
from keras_seq.data import TokenFiles, TokenFilesError, documents, load_corpus
from keras_seq.data import prepare as prepare_module
from keras_seq.data.documents import DocumentsError, Part, divide, find_files, read_texts
from keras_seq.data.prepare import prepare
from keras_seq.tokenizers import CharacterTokenizer, TokenizerError, WordTokenizer, document_token, load_tokenizer
from keras_seq.tokenizers.words import split_words

TEXTS = ["One\r\ntwo.\r\n", "\n\nThé end\x1e of it", "", "z" * 50 + "\n" + "yé " * 100, "last, but\nnot least\n"]
EXPECTED = [text.replace("\r\n", "\n").replace("\x1e", "") for text in TEXTS]


@pytest.fixture
def texts(tmp_path):
    """Files of three formats with the documents above; the empty one is a line of JSON."""
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "no.txt").write_text("hidden")
    (folder / "no.py").write_text("no text")
    (folder / "a.txt").write_bytes(TEXTS[0].encode())
    with gzip.open(folder / "b.jsonl.gz", "wt", newline="") as file:
        file.write("".join(f"{json.dumps({'text': text, 'id': 3})}\n\n" for text in TEXTS[1:3]))
    (folder / "c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[3:4]))
    (folder / "sub" / "d.txt").write_bytes(TEXTS[4].encode())
    return folder


def decoded(folder):
    """The documents in a folder."""
    files, tokenizer = TokenFiles.open(folder), load_tokenizer(folder / "tokenizer.json")
    assert files.document_token == document_token(tokenizer)
    ids, starts = np.asarray(files), files.document_starts()
    assert np.array_equal(starts, np.flatnonzero(ids == files.document_token))
    return [tokenizer.decode(part[1:]) for part in np.split(ids, starts[1:])]


def contents(folder):
    """The bytes of all files in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("group_bytes", [1, 40, 10**6])
@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
def test_documents_come_back(texts, tmp_path, kind, group_bytes):
    index = prepare([str(texts)], tmp_path / "out", kind, group_bytes=group_bytes)
    tokenizer = load_tokenizer(tmp_path / "out" / "tokenizer.json")
    expected = EXPECTED
    if kind == "words":  # some of them unknown
        expected = [tokenizer.decode(tokenizer.encode(text)) for text in EXPECTED]
    elif kind == "bpe":  # U+001E is a character like others
        expected = [text.replace("\r\n", "\n") for text in TEXTS]
    assert decoded(tmp_path / "out") == expected
    assert index["characters"] == sum(map(len, expected if kind == "bpe" else EXPECTED))
    assert index["documents"] == len(EXPECTED)
    TokenFiles.open(tmp_path / "out").verify()
    before = contents(tmp_path / "out")
    assert prepare([str(texts)], tmp_path / "out", kind, group_bytes=group_bytes) == index
    assert contents(tmp_path / "out") == before


@pytest.mark.rare
def test_two_processes_write_the_same_bytes(texts, tmp_path):
    reports = []
    for processes in (1, 2):
        prepare(
            [str(texts / "*.jsonl*"), str(texts / "sub")],
            tmp_path / str(processes),
            group_bytes=40,
            processes=processes,
            progress=lambda *report: reports.append(report),
        )
        assert reports[-1][0] == reports[-1][1]
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.parametrize(
    ("text", "num_groups"),
    [("é" * 70_000 + "\n" + "ab\n" * 30_000, 5), ("é word" * 30_000, 9), ("é" * 600_000, 1), ("-\n" * 300_000, 1)],
    ids=["lines", "words", "a word", "signs"],
)
def test_large_files_are_divided_between_two_words_or_not_at_all(tmp_path, text, num_groups):
    (tmp_path / "long.txt").write_text(text)
    groups = divide(find_files(tmp_path / "long.txt"), 20_000)
    assert len(groups) >= num_groups
    pieces = [list(read_texts(part)) for [part] in groups]
    assert "".join(piece for parts in pieces for _, piece in parts) == text
    assert [begins for parts in pieces for begins, _ in parts].count(True) == 1
    assert max(len(piece) for parts in pieces for _, piece in parts) <= 1 << 18


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_no_token_is_cut_where_a_text_is_divided(tmp_path, monkeypatch, end):
    monkeypatch.setattr(documents, "CHUNK_BYTES", 1 << 13)
    lines = ["one word.", "", " (indented)", "two, words ", "'quoted'", "— a dash", "“¿qué?”", "слово"]
    text = end.join(random.Random(0).choices(lines, k=4_000))
    (tmp_path / "a.txt").write_text(text, newline="")
    parts = [part for group in divide(find_files([str(tmp_path / "a.txt")]), 200) for part in group]
    whole = Part(parts[0].file, 0, parts[0].file.size)  # read in chunks
    divided, chunks = ([text for part in some for _, text in read_texts(part)] for some in (parts, [whole]))
    assert len(divided) > 100
    assert len(chunks) > 2
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for split in (split_words, lambda text: [token for token, _ in byte_level.pre_tokenize_str(text)]):
        expected = split(text.replace("\r\n", "\n"))
        for pieces in (divided, chunks):
            assert [token for piece in pieces for token in split(piece)] == expected


@pytest.mark.parametrize("ending", ["é", "é\n", "\U0001f600"])
def test_a_border_within_the_last_character(tmp_path, ending):
    for length in range(20):
        text = "x" * length + ending
        (tmp_path / "a.txt").write_text(text)
        parts = [part for group in divide(find_files([str(tmp_path / "a.txt")]), 5) for part in group]
        assert "".join(text for part in parts for _, text in read_texts(part)) == text


HOSTILE = [
    "\ufeffab\r\ncd é\n\n日本語\r\n\r\nxyz\r\r\n" * 3 + "no newline here " * 9 + "\r\n" + "é" * 60,
    "second é\r\ndoc.\r\n",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd " * 4,
    "One 'word', it's (2) words.\n- a list\n\tcode  = 3;\n" * 5,
    "w" * 5_000,
]


@pytest.fixture
def hostile(tmp_path):
    """Texts with line ends of all kinds, a byte order mark, emoji, and a word of 5,000 letters."""
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(HOSTILE):
        (tmp_path / "texts" / f"{number}.txt").write_bytes(text.encode())
    return tmp_path / "texts"


@pytest.mark.parametrize("kind", ["characters", "words", "wordpiece", "bpe"])
def test_where_groups_of_bytes_end_changes_nothing(hostile, tmp_path, kind):
    options = {} if kind == "characters" else {"vocabulary_size": 300}
    results = []
    for group_bytes in (1 << 27, 1, 50, 333):
        folder = tmp_path / str(group_bytes)
        index = prepare(hostile, folder, kind, group_bytes=group_bytes, processes=1, **options)
        files, tokenizer = TokenFiles.open(folder), (folder / "tokenizer.json").read_bytes()
        results.append((tokenizer, files[:].tolist(), files.document_starts().tolist(), index["unknown"]))
        assert results[-1] == results[0], group_bytes
    if kind in ("characters", "bpe"):
        texts = [text.removeprefix("\ufeff").replace("\r\n", "\n") for text in HOSTILE]
        assert decoded(folder) == texts


@pytest.mark.parametrize("length", [20, 31])
def test_a_text_without_a_place_between_words_is_cut_wherever_its_bytes_are_read(hostile, monkeypatch, length):
    (hostile / "5.txt").write_text("x" * 40 + "\nab\n" + "é" * 33 + " b " + "-" * 50 + "c d" + "\n" * 30 + "e\r\n" * 9)
    monkeypatch.setattr(documents, "MAX_CHARACTERS", length)
    results = []
    for chunk, group_bytes in ((17, 1 << 27), (3, 1 << 27), (7, 1), (1, 40), (13, 9)):
        monkeypatch.setattr(documents, "CHUNK_BYTES", chunk)
        pieces = [p for group in divide(find_files(hostile), group_bytes) for part in group for p in read_texts(part)]
        results.append([token for _, text in pieces for token in split_words(text)])
        assert results[-1] == results[0], (chunk, group_bytes)
    assert max(map(len, results[0])) <= length


def test_a_tokenizer_knows_the_text_that_it_was_trained_on(tmp_path):
    for name, text in {"a": "One.\n", "b": "x" * 5_000, "c": HOSTILE[2], "d": "One.\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(text)
        (tmp_path / name / "b.txt").write_text("" if name != "d" else text)
        index = prepare(tmp_path / name, tmp_path / f"{name}-out", "words")
        assert (index["unknown"], index["unknown_examples"]) == (0, []), name


@pytest.mark.parametrize(
    ("kind", "unknown", "examples"),
    [("characters", 0, []), ("words", 2, ["neW", "文"]), ("wordpiece", 2, ["neW", "文"])],
)
def test_what_a_tokenizer_does_not_know_is_counted_and_named(tmp_path, kind, unknown, examples):
    (tmp_path / "a.txt").write_text("one or two " * 99 + "neW 文")
    index = prepare(tmp_path / "a.txt", tmp_path / "out", kind)
    assert (index["unknown"], index["unknown_examples"]) == (unknown, examples)
    (tmp_path / "b.txt").write_text("or ö two")
    tokenizer = CharacterTokenizer("\x1e ortw", oov_token="[UNK]")
    index = prepare(tmp_path / "b.txt", tmp_path / "more", tokenizer)
    assert (index["unknown"], index["unknown_examples"]) == (1, ["ö"])


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbfab\r\n", b"a\r\r\nb\n\r", b"a\rb\r", b"\xef\xbb\xbf\xef\xbb\xbfx", b" \n"]
)
def test_a_prepared_folder_and_a_corpus_are_the_same_text(tmp_path, data, ending):
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / f"b{ending}").write_bytes(gzip.compress(data) if ending == ".txt.gz" else data)
    prepare(tmp_path / f"b{ending}", tmp_path / "out")
    for strip_whitespace in (False, True) if data.strip() else (False,):
        expected = load_corpus(tmp_path / "a.txt", strip_whitespace).text
        assert load_corpus(tmp_path / "out", strip_whitespace).text == expected
    (tmp_path / "c.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps({"text": "\ufeffa\r\r\n"}).encode() + b"\r\n")
    assert [*read_texts(Part(find_files(tmp_path / "c.jsonl")[0], 0, 99))] == [(True, "\ufeffa\r\n")]


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("processes=-3", {"processes": -3}),
        ("processes=0", {"processes": 0}),
        ("vocabulary_size=500.*characters", {"vocabulary_size": 500}),
        ("min_count=2.*a tokenizer as it is", {"tokenizer": CharacterTokenizer("\x1eab"), "min_count": 2}),
        ("tokenizer='letters'", {"tokenizer": "letters"}),
        ("tokenizer=int 3", {"tokenizer": 3}),
        ("group_bytes=0", {"group_bytes": 0}),
        ("sample_characters=0", {"sample_characters": 0}),
    ],
)
def test_options_that_mean_nothing_are_refused_before_anything_is_written(texts, tmp_path, match, options):
    refused(match, texts, tmp_path / "out", error=ValueError, **options)
    assert not (tmp_path / "out").exists()


def test_all_characters_are_collected(tmp_path):
    (tmp_path / "a.txt").write_text("abc" * 100 + "x")
    prepare([str(tmp_path / "a.txt")], tmp_path / "out", sample_characters=10)
    assert decoded(tmp_path / "out") == ["abc" * 100 + "x"]
    (tmp_path / "b.txt").write_text("cab")
    tokenizer = load_tokenizer(tmp_path / "out" / "tokenizer.json")
    prepare([str(tmp_path / "b.txt")], tmp_path / "more", tokenizer)
    assert decoded(tmp_path / "more") == ["cab"]
    with pytest.raises(TokenizerError, match=r"U\+001E"):
        prepare([str(tmp_path / "b.txt")], tmp_path / "none", WordTokenizer.from_text("abc"))


@pytest.mark.parametrize("sample_characters", [10_000, 10**6])
def test_no_word_of_the_last_tenth_is_learned_whatever_the_kinds_of_files(tmp_path, sample_characters):
    """A compressed file is one group, however long its text; the plain one after it is many."""
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write("first second third " * 1000)
    (tmp_path / "b.txt").write_text("last " * 200)
    names = [str(tmp_path / name) for name in ("a.txt.gz", "b.txt")]
    prepare(names, tmp_path / "out", tokenizer="words", sample_characters=sample_characters)
    vocabulary = load_tokenizer(tmp_path / "out" / "tokenizer.json").vocabulary
    assert {"first", "second", "third"} <= {*vocabulary}
    assert "last" not in vocabulary


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def test_a_run_stopped_at_any_write_continues_to_the_same_bytes(texts, tmp_path, monkeypatch):
    arguments = {"tokenizer": "characters", "group_bytes": 40}
    prepare([str(texts)], tmp_path / "whole", **arguments)
    expected, replace, runs = contents(tmp_path / "whole"), os.replace, 0
    finished = False
    while not finished:
        runs += 1
        folder, left = tmp_path / f"stopped{runs}", [runs]

        def stop_at(source, target, left=left):
            left[0] -= 1
            if not left[0]:
                raise Killed
            replace(source, target)

        monkeypatch.setattr(atomic_files.os, "replace", stop_at)
        with contextlib.suppress(Killed):
            prepare([str(texts)], folder, **arguments)
            finished = True
        monkeypatch.setattr(atomic_files.os, "replace", replace)
        (folder / ".00001.4194305.partial.bin").write_bytes(b"half")  # of a process that was killed
        if not (folder / "index.json").exists():
            with pytest.raises(TokenFilesError):
                TokenFiles.open(folder)
        prepare([str(texts)], folder, **arguments)
        assert contents(folder) == expected
    assert runs > 12


KILLS = """
import os, random, signal, sys, time
from keras_seq.data.prepare import prepare

texts, folder, kills = sys.argv[1], sys.argv[2], 0
draw, seconds = random.Random(0), 0.02
while kills < 10:
    child = os.fork()
    if not child:
        prepare([texts], folder, group_bytes=20_000)
        os._exit(0)
    time.sleep(draw.uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    was_killed = os.WIFSIGNALED(status)
    kills += was_killed
    if not was_killed:  # it had ended: begin anew
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
prepare([texts], folder, group_bytes=20_000)
"""


@pytest.mark.rare
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_ten_kills(texts, tmp_path):
    """Killed by the system at random moments; without TensorFlow, which does not fork well."""
    pytest.importorskip("scipy")  # for Keras's NumPy backend
    (texts / "big.txt").write_text("some words, a line\n" * 20_000)
    command = [sys.executable, "-c", KILLS, str(texts), str(tmp_path / "killed")]
    subprocess.run(command, check=True, env={**os.environ, "KERAS_BACKEND": "numpy"})
    prepare([str(texts)], tmp_path / "whole", group_bytes=20_000)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.mark.rare
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_ends_all_processes_in_a_word(tmp_path):
    (tmp_path / "text.txt").write_text("some words, a line\n" * 1_000_000)
    options = ["--processes", "2", "--group-bytes", "100000"]
    command = [sys.executable, "-m", "keras_seq", "prepare", tmp_path / "text.txt", "--to", tmp_path / "out", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    while process.poll() is None and not (tmp_path / "out" / "00000.bin").exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    words = process.communicate()[1].decode().splitlines()
    assert (words[-1], process.returncode) == ("Stopped.", 130)
    assert not [line for line in words if "Traceback" in line]


def refused(match, *arguments, error=DocumentsError, **options):
    with pytest.raises(error, match=match):
        prepare(*arguments, **options)


def test_inputs_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "utf16.txt").write_bytes("a".encode("utf-16"))
    (tmp_path / "utf16.jsonl").write_bytes('{"text": "a"}'.encode("utf-16"))
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"\n')
    (tmp_path / "field.jsonl").write_text('{"body": "a"}\n')
    (tmp_path / "null.jsonl").write_text('{"text": null}\n')
    (tmp_path / "half.jsonl").write_text('{"text": "\\ud800"}\n')
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"abc" * 1000)[:-10])
    (tmp_path / "empty.txt").write_text("")
    for name in ("folder", "bytes", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "bytes" / os.fsdecode(b"\xff.txt")).write_text("a")
    (tmp_path / "broken" / "a.txt").symlink_to("nowhere")
    for name, match in [
        ("latin.txt", r"latin\.txt is not UTF-8 \(byte 0xe9"),
        ("utf16.txt", r"utf16\.txt is UTF-16, not UTF-8"),
        ("utf16.jsonl", r"utf16\.jsonl is UTF-16, not UTF-8"),
        ("bad.jsonl", r"bad\.jsonl has a line \(2 in this part\) that is not JSON"),
        ("field.jsonl", "without 'text': name it with --field"),
        ("null.jsonl", "1 in this part.* whose 'text' is None, no text: leave it out"),
        ("half.jsonl", "half a surrogate pair"),
        ("cut.txt.gz", r"cut\.txt\.gz cannot be read"),
        ("empty.txt", "no text to train"),
        ("folder", "no file was found"),
        ("none*.txt", "no file was found"),
        ("none.txt", r"none\.txt cannot be read"),
        ("bytes", r"\\udcff\.txt' has a name that is not UTF-8: rename it"),
        ("broken", r"broken/a\.txt cannot be read"),
        ("a\0b", r"a\\x00b' is no path"),
    ]:
        refused(match, [str(tmp_path / name)], tmp_path / f"out-{name.strip('*')}")


def test_links_are_followed_and_each_folder_is_read_once(tmp_path):
    for name in ("real", "linked", "linked/.hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    (tmp_path / "real" / "more").symlink_to(tmp_path / "linked")
    (tmp_path / "real" / "again").symlink_to(tmp_path / "real")
    found = [file.path for file in find_files(tmp_path / "real")]
    assert found == [str(tmp_path / "real" / name) for name in ("a.txt", "more/a.txt")]


def test_changes_between_two_runs_are_named(texts, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    prepare([str(texts)], folder)
    refused("other options", [str(texts)], folder, "words")
    (texts / "new.txt").write_text("new")
    refused(r"new\.txt is new", [str(texts)], folder)
    (texts / "new.txt").unlink()
    (texts / "a.txt").write_text("changed")
    refused(r"a\.txt was changed", [str(texts)], folder)
    (texts / "a.txt").unlink()
    refused(r"a\.txt is missing", [str(texts)], folder)
    refused("other files", [str(texts)], texts / "sub")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_files, "sync", full)
    refused(r"No space left on device.*full", [str(texts)], tmp_path / "full", error=OSError)


@pytest.fixture
def stopped(texts, tmp_path, monkeypatch):
    """A folder that lacks nothing but its index."""

    def stop(*_):
        raise Killed

    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(prepare_module, "_write_index", stop)
        prepare([str(texts)], tmp_path / "out", group_bytes=40)
    assert (tmp_path / "out" / "00001.json").exists()
    return tmp_path / "out"


def test_the_tokenizer_of_a_stopped_run_is_not_another(texts, stopped):
    other = WordTokenizer.from_text("other words")
    other.save(stopped / "tokenizer.json")
    refused(r"tokenizer\.json was changed", [str(texts)], stopped, group_bytes=40)
    (stopped / "tokenizer.json").unlink()
    refused(r"tokenizer\.json was changed", [str(texts)], stopped, group_bytes=40)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[", None])
@pytest.mark.parametrize("name", ["00001.json", "00001.bin", "00001.documents"])
def test_a_shard_with_a_damaged_file_is_written_again(texts, stopped, tmp_path, name, damage):
    prepare([str(texts)], tmp_path / "whole", group_bytes=40)
    (stopped / name).unlink()
    if damage is not None:
        (stopped / name).write_bytes(damage)
    prepare([str(texts)], stopped, group_bytes=40)
    assert contents(stopped) == contents(tmp_path / "whole")


@pytest.mark.parametrize("key", ["options", "inputs", "schema"])
def test_a_damaged_plan_is_named(texts, stopped, key):
    path = stopped / "inputs.json"
    plan = json.loads(path.read_text())
    path.write_text(json.dumps({**plan, key: 5}))
    refused("damaged|other options", [str(texts)], stopped, group_bytes=40)
    path.write_text(json.dumps({name: value for name, value in plan.items() if name != key}))
    refused("damaged", [str(texts)], stopped, group_bytes=40)


def test_a_tokenizer_of_ones_own_is_not_overwritten(texts, tmp_path):
    WordTokenizer.from_text("my words").save(tmp_path / "tokenizer.json")
    before = (tmp_path / "tokenizer.json").read_bytes()
    (tmp_path / "texts").rename(tmp_path.parent / f"{tmp_path.name}-texts")
    refused("other files", [f"{tmp_path}-texts"], tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before


def test_other_options_may_follow_if_there_was_no_tokenizer(texts, tmp_path):
    refused("at least", [str(texts)], tmp_path / "out", "bpe", vocabulary_size=3, error=ValueError)
    prepare([str(texts)], tmp_path / "out")
    assert decoded(tmp_path / "out") == EXPECTED


def test_damage_of_a_prepared_folder_is_named(texts, tmp_path):
    prepare([str(texts)], tmp_path / "out", group_bytes=40)
    for name, damage, match in [
        ("00001.bin", b"", r"00001\.bin is damaged: it has 0 bytes"),
        ("00000.documents", None, r"00000\.documents cannot be read"),
        ("index.json", b'{"schema": 1}', r"index\.json is damaged"),
        ("tokenizer.json", b"{}", r"tokenizer\.json does not fit"),
    ]:
        path = tmp_path / "out" / name
        before = path.read_bytes()
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        with pytest.raises(TokenFilesError, match=match):
            TokenFiles.open(tmp_path / "out")
        path.write_bytes(before)
    path = tmp_path / "out" / "00001.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    files = TokenFiles.open(tmp_path / "out")
    with pytest.raises(TokenFilesError, match=r"00001\.bin is damaged: its sha256"):
        files.verify()


def test_parquet_and_zstandard(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"body": ["one\r\n", "two"], "n": [1, 2]}), tmp_path / "a.parquet")
    prepare([str(tmp_path / "a.parquet")], tmp_path / "out", field="body")
    assert decoded(tmp_path / "out") == ["one\n", "two"]
    refused("no column 'text', but body, n", [str(tmp_path / "a.parquet")], tmp_path / "column")
    refused("whose 'n' is", [str(tmp_path / "a.parquet")], tmp_path / "number", field="n")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
    refused(r"b\.parquet cannot be read", [str(tmp_path / "b.parquet")], tmp_path / "bad")
    with pyarrow.output_stream(tmp_path / "c.txt.zst", compression="zstd") as file:
        file.write(b"drei\n" * 9)
    prepare([str(tmp_path / "c.txt.zst")], tmp_path / "zst")
    assert decoded(tmp_path / "zst") == ["drei\n" * 9]


def test_a_parquet_file_that_changes_or_is_damaged_is_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet, path = pytest.importorskip("pyarrow.parquet"), tmp_path / "a.parquet"
    options = {"compression": "none", "use_dictionary": False, "row_group_size": 100, "write_page_checksum": True}
    parquet.write_table(pyarrow.table({"text": [f"old {n:04d}" for n in range(600)]}), path, **options)
    ((part,),) = divide(find_files([str(path)]), 10**9)
    texts = read_texts(part)
    next(texts)
    os.utime(path, (1, 1))
    with pytest.raises(DocumentsError, match="was changed"):
        list(texts)
    path.write_bytes(path.read_bytes().replace(b"old 0050", b"new 0050"))
    ((part,),) = divide(find_files([str(path)]), 10**9)
    with pytest.raises(DocumentsError, match="cannot be read"):
        list(read_texts(part))

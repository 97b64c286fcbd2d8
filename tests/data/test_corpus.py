import functools
import hashlib
import io
import os
import subprocess
import sys
import tracemalloc
import types
import urllib.error
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.data import Corpus, CorpusError, builtin_texts, corpus, load_corpus, verbatim_overlap
from keras_seq.data.builtin_texts import download
from keras_seq.tokenizers import TokenizerError

SHAKESPEARE = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Keras's cache in a folder of the test's own, and no KERAS_SEQ_DATA."""
    monkeypatch.delenv("KERAS_SEQ_DATA", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    (tmp_path / "keras" / "datasets").mkdir(parents=True)
    return tmp_path / "keras" / "datasets"


@pytest.fixture
def short_shakespeare(monkeypatch):
    """Two lines pass for tiny Shakespeare."""
    monkeypatch.setattr(builtin_texts, "SHAKESPEARE_SHA256", hashlib.sha256(SHAKESPEARE).hexdigest())
    monkeypatch.setattr(builtin_texts, "SHAKESPEARE_BYTES", len(SHAKESPEARE))


@pytest.fixture
def network(monkeypatch):
    """What there is to download, instead of the network: bytes, or an error; None stands for a failing test."""

    def network(content):
        def answer(url, timeout):
            assert content is not None, "downloaded"
            if isinstance(content, Exception):
                raise content
            return io.BytesIO(content)

        opener = types.SimpleNamespace(open=answer)
        monkeypatch.setattr(builtin_texts, "download", functools.partial(download, opener=opener))

    return network


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def sentence(error) -> str:
    """The message, after the check that it is one line that ends as a sentence does."""
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def test_pydoc_is_english_and_the_same_twice():
    first, second = load_corpus("pydoc"), load_corpus("pydoc")
    assert first == second
    assert first.name == "pydoc"
    assert len(first.text) > 300_000
    assert first.text.count(" the ") > 3_000
    assert first.sha256 == hashlib.sha256(first.text.encode()).hexdigest()


def test_pydoc_missing_from_this_python(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(CorpusError) as error:
        load_corpus("pydoc")
    assert "standard library" in sentence(error)


@given(data=st.text(st.characters(codec="utf-8"), min_size=1))
@settings(max_examples=60)
def test_a_file_is_read_as_it_is_but_for_its_line_ends(tmp_path_factory, data):
    path = written(tmp_path_factory.getbasetemp() / "text", data.encode())
    loaded = load_corpus(path)
    assert loaded.text == data.replace("\r\n", "\n")
    assert loaded.sha256 == hashlib.sha256(data.encode()).hexdigest()
    assert loaded.name == str(path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\rc\n\rd", "a\nb\rc\n\rd"),
        (b"\xef\xbb\xbfa\xef\xbb\xbf", "a\ufeff"),
        (b"a\x00b", "a\x00b"),
        ("👩‍👩‍👧 e\u0301 漢字 \U0010ffff".encode(), "👩‍👩‍👧 e\u0301 漢字 \U0010ffff"),
    ],
)
def test_odd_characters_stay(tmp_path, data, text):
    assert load_corpus(str(written(tmp_path / "text", data))).text == text


def test_strip_whitespace_removes_spaces_and_newlines_and_nothing_else(tmp_path):
    path = written(tmp_path / "text", b" a b\r\n\n c\td\r e\xc2\xa0f ")
    assert load_corpus(path, strip_whitespace=True).text == "abc\td\re\xa0f"
    assert load_corpus(path, strip_whitespace=True).sha256 == load_corpus(path).sha256
    with pytest.raises(CorpusError, match="empty without its whitespace"):
        load_corpus(written(tmp_path / "blank", b" \n "), strip_whitespace=True)


def test_a_file_named_like_a_corpus_is_reached_as_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "pydoc", b"mine")
    assert load_corpus("./pydoc").text == load_corpus(Path("pydoc")).text == "mine"
    assert load_corpus("pydoc").text != "mine"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b"abc\xffdef", "offset 3 is 0xff"),
        ("é\r\n".encode() * 5 + b"\xc3(", "offset 20 is 0xc3"),
        (b"ab\xe2\x82", "offset 2 is 0xe2"),
        (b"\xed\xa0\x80", "offset 0 is 0xed"),
        ("text".encode("utf-16"), "not UTF-8"),
    ],
)
def test_bad_bytes(tmp_path, data, expected):
    with pytest.raises(CorpusError) as error:
        load_corpus(written(tmp_path / "bad.txt", data))
    assert expected in sentence(error)
    assert "bad.txt" in sentence(error)


@pytest.mark.parametrize("path", ["missing.txt", "shakespear", "a/b/c", "a\0b", "a" * 5000, "/dev/zero", "/dev/null/x"])
def test_bad_paths(path):
    with pytest.raises(CorpusError) as error:
        load_corpus(path)
    assert "text file" in sentence(error)


def test_an_empty_folder_a_pattern_without_files_and_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, expected in (
        (tmp_path, "no text file"),
        (tmp_path / "*", "regular"),
        (tmp_path / "*.md", "no text file"),
    ):
        with pytest.raises(CorpusError) as error:
            load_corpus(path)
        assert expected in sentence(error)


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """The current folder, with texts below it that end with and without a line break, and files that are none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts" / "sub").mkdir(parents=True)
    (tmp_path / "texts" / ".git").mkdir()
    for name, data in {"b.txt": b"B", "a.txt": b"A\n", "sub/c.txt": "\u00e7\n\n".encode()}.items():
        written(tmp_path / "texts" / name, data)
    for name in (".git/d.txt", "._a.txt", "e.md"):
        written(tmp_path / "texts" / name, b"\xff")
    written(tmp_path / "last[1].txt", b"L\n")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "text", "name"),
    [
        ("texts", "A\n\nB\n\n\u00e7\n\n", "texts/a.txt and 2 more"),
        ("texts/*.txt", "A\n\nB", "texts/a.txt and 1 more"),
        ("texts/**/*.txt", "A\n\nB\n\n\u00e7\n\n", "texts/a.txt and 2 more"),
        ("texts/s*", "\u00e7\n\n", "texts/sub/c.txt"),
        (["last[1].txt", "texts/b.txt"], "L\n\nB", "last[1].txt and 1 more"),
        ((Path("texts/b.txt"), "./texts/b.txt", "texts"), "B\n\nA\n\n\u00e7\n\n", "texts/b.txt and 2 more"),
    ],
)
def test_several_files_are_joined_by_blank_lines_each_once(texts, names, text, name):
    loaded = load_corpus(names)
    assert (loaded.text, loaded.name) == (text, name)
    assert loaded.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_one_of_several_files_that_is_not_utf_8_is_named(texts):
    with pytest.raises(CorpusError, match=r"texts/e.md.* offset 0 is 0xff"):
        load_corpus(["texts/a.txt", "texts/e.md"])


def test_names_and_files_can_be_joined(texts):
    pydoc = load_corpus("pydoc").text
    assert load_corpus(["texts/a.txt", "pydoc", "pydoc"]).text == f"A\n\n{pydoc}"


def test_no_permission(tmp_path, monkeypatch):
    path = written(tmp_path / "secret", b"text")
    # Not by chmod, from which root would be exempt.
    monkeypatch.setattr(
        Path, "read_bytes", lambda self: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    with pytest.raises(CorpusError) as error:
        load_corpus(path)
    assert "permission" in sentence(error)


@given(text=st.text(min_size=1, max_size=200), fraction=st.floats(0.001, 0.999), min_length=st.integers(1, 20))
@settings(max_examples=60)
def test_a_split_is_two_parts_of_at_least_a_window_or_an_error(text, fraction, min_length):
    whole = Corpus("any", text, "")
    middle = int(len(text) * fraction)
    if min(middle, len(text) - middle) < min_length:
        with pytest.raises(CorpusError, match=f"of {len(text)} characters, fewer than the {min_length} of a window"):
            whole.split(fraction, min_length=min_length)
    else:
        assert whole.split(fraction, min_length=min_length) == (text[:middle], text[middle:])


def test_a_corpus_prints_without_its_text():
    assert len(repr(load_corpus("pydoc"))) < 200


@pytest.mark.parametrize(
    "text", ["x" * 2_000_000, "x" * 1_999_999 + "👩", "漢\r\n" * 700_000], ids=["ASCII", "one wide", "two bytes"]
)
def test_memory_is_a_few_bytes_a_character(tmp_path, text):
    path = written(tmp_path / "text", text.encode())
    tracemalloc.start()
    try:
        load_corpus(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 11 * len(text)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_from_file_to_windows_is_under_12_bytes_a_character(tmp_path):
    length = 30_000_000
    # One character of this kind makes Python hold every character in 4 bytes.
    path = written(tmp_path / "text", b"To be, or not to be. " * (length // 21) + "👩".encode())
    program = f"""
import pathlib, re
from keras_seq.data import StatefulWindows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer
def peak():
    # of this process: a child's ru_maxrss begins with its parent's
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
def windows(ids):
    return list(StatefulWindows(ids, 12, 64).stateful_dataset(0, 3))
tokenizer = CharacterTokenizer.from_text("!abcdefghijklmnopqrstuvwxyz ,." * 50_000, oov_token="[UNK]")
windows(tokenizer.encode(tokenizer.characters * 50_000))
before = peak()
train, validation = load_corpus({str(path)!r}).split()
windows(tokenizer.encode(train)), windows(tokenizer.encode(validation))
print((peak() - before) / {length})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 12


def test_shakespeare_from_the_data_folder(tmp_path, monkeypatch, short_shakespeare):
    written(tmp_path / "shakespeare.txt", SHAKESPEARE)
    monkeypatch.setenv("KERAS_SEQ_DATA", str(tmp_path))
    loaded = load_corpus("shakespeare")
    assert (loaded.name, loaded.text) == ("shakespeare", SHAKESPEARE.decode())


def test_shakespeare_downloaded_once_and_whole(cache, network, short_shakespeare):
    network(SHAKESPEARE)
    assert load_corpus("shakespeare").text == SHAKESPEARE.decode()
    network(None)
    assert load_corpus("shakespeare").text == SHAKESPEARE.decode()
    assert [path.name for path in cache.iterdir()] == ["shakespeare.txt"]


def test_a_download_that_went_wrong_leaves_nothing(cache, network, short_shakespeare):
    wrong = SHAKESPEARE[:-1] + b"!"
    network(wrong)
    with pytest.raises(CorpusError) as error:
        load_corpus("shakespeare")
    assert hashlib.sha256(wrong).hexdigest() in sentence(error)
    assert hashlib.sha256(SHAKESPEARE).hexdigest() in sentence(error)
    assert list(cache.iterdir()) == []


def test_a_download_that_fails_says_what_works_offline(cache, network):
    network(urllib.error.URLError("Name or service not known"))
    with pytest.raises(CorpusError) as error:
        load_corpus("shakespeare")
    assert all(
        word in sentence(error) for word in ("Name or service", "https://", "docstrings", "path", "KERAS_SEQ_DATA")
    )
    assert list(cache.iterdir()) == []


def test_a_wrong_file_is_refused_and_left_alone(cache, tmp_path, monkeypatch):
    written(cache / "shakespeare.txt", b"not him")
    for folder in ("", str(cache)):
        monkeypatch.setenv("KERAS_SEQ_DATA", folder)
        with pytest.raises(CorpusError) as error:
            load_corpus("shakespeare")
        assert hashlib.sha256(b"not him").hexdigest() in sentence(error)
        assert builtin_texts.SHAKESPEARE_SHA256 in sentence(error)
        assert (cache / "shakespeare.txt").read_bytes() == b"not him"


def test_a_data_folder_without_shakespeare(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_SEQ_DATA", str(tmp_path))
    with pytest.raises(CorpusError) as error:
        load_corpus("shakespeare")
    assert "KERAS_SEQ_DATA" in sentence(error)
    assert str(tmp_path) in sentence(error)


@pytest.mark.skipif("KERAS_SEQ_DATA" not in os.environ, reason="needs KERAS_SEQ_DATA, a folder with shakespeare.txt")
def test_the_real_shakespeare():
    shakespeare = load_corpus("shakespeare")
    assert (len(shakespeare.text), len(set(shakespeare.text))) == (1_115_394, 65)
    assert [len(side) for side in shakespeare.split(0.9)] == [1_003_854, 111_540]


def naive(train, validation, length):
    known = {train[i : i + length] for i in range(len(train) - length + 1)}
    copied = set()
    for i in range(len(validation) - length + 1):
        if validation[i : i + length] in known:
            copied |= set(range(i, i + length))
    return len(copied) / len(validation) if copied else 0.0


@given(
    train=st.text("ab\U0001f600", max_size=120),
    validation=st.text("ab\U0001f600", max_size=60),
    length=st.sampled_from([1, 2, 4, 8, 16]),
    chunk=st.sampled_from([1, 7, 50, 1000]),
)
@settings(max_examples=200)
def test_it_is_what_counting_finds(train, validation, length, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "CHUNK_CHARS", chunk)
        assert verbatim_overlap(train, validation, length) == pytest.approx(naive(train, validation, length))


def test_a_copy_counts_from_its_first_to_its_last_character():
    page = "".join(map(chr, range(1000, 1100)))
    rest = "".join(map(chr, range(2000, 2100)))
    assert verbatim_overlap("x" * 999 + page + "y" * 50, rest + page) == 0.5
    assert verbatim_overlap(page[:64], rest + page[:64]) == 64 / 164
    assert verbatim_overlap(page[:63], rest + page) == 0.0
    assert verbatim_overlap(page, page[:63]) == 0.0
    assert verbatim_overlap("", rest) == verbatim_overlap(rest, "") == 0.0


def test_memory_does_not_grow_with_the_training_text():
    train, validation = "abcdefghijklmnop" * 500_000, "ponmlkjihgfedcba" * 100
    tracemalloc.start()
    try:
        assert verbatim_overlap(train, validation) == 0.0
        assert tracemalloc.get_traced_memory()[1] < 60_000_000  # where all hashes at once have 64
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [0, -1, 3, 63, 2.0, True, None])
def test_a_length_is_a_power_of_two(length):
    with pytest.raises(ValueError, match="length"):
        verbatim_overlap("ab", "ab", length)


@pytest.mark.parametrize("texts", [(b"ab", "ab"), ("ab", None), ("\ud800", "ab")])
def test_texts_are_texts(texts):
    with pytest.raises(TokenizerError):
        verbatim_overlap(*texts)

"""The texts that need no file: docstrings, and downloads from a server in this process that answers as none should."""

import ast
import hashlib
import http.client
import http.server
import os
import re
import threading
import time
import urllib.request

import numpy as np
import pytest

from keras_seq.data import CorpusError, builtin_texts, load_corpus, verbatim_overlap
from keras_seq.data.builtin_texts import (
    DownloadError,
    HttpsOnly,
    download,
    paragraphs,
    standard_library_docstrings,
    standard_library_source,
)
from keras_seq.runs.texts import MIN_OVERLAP_TO_REPORT

SOURCE = '''
"""Does this.

Both have this one.

    Indented.
"""
def f():
    """Both have this one.   \n\t\n    \n    Of f."""
    if f:
        class C:
            "Of C."
            async def g(self):
                "Of g."
    f = lambda: "no docstring"
    "no docstring"
'''


@pytest.fixture
def library(tmp_path):
    """A library of a few modules, some of which are left out."""
    folder = tmp_path / "library"
    for path, source in {
        "ast.py": SOURCE,
        "json/__init__.py": '"""Both have this one."""',
        "json/tool.py": '"Of the tool: ä."',
        "json/tests/test_tool.py": '"A test."',
        "os.py": "def broken(",
        "tkinter/__init__.py": '"Left out."',
        "site-packages/json.py": '"Not of the library."',
        "test/ast.py": '"A test."',
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(source, encoding="utf-8")
    return folder


TEXT = "Does this.\n\nBoth have this one.\n\n    Indented.\n\nOf f.\n\nOf C.\n\nOf g.\n\nOf the tool: ä."


def test_each_paragraph_once_in_the_order_of_the_sources(library, tmp_path):
    assert standard_library_docstrings(tmp_path / "cache", library).decode() == TEXT


def test_a_paragraph_that_repeats_more_than_a_fifth_of_its_four_word_runs_is_left_out():
    texts = {
        "one two three four five six seven": True,
        "one two three four five six eight": False,  # 3 of 4 runs
        "one two three": True,  # too short for a run
        "a b c d e f g h": True,
        "One Two three four A1 B1 C1 D1": True,  # 1 of 5
        "p q r s one two three four five": False,  # 2 of 6
        "p q r s t u": True,  # those of a text that was left out do not count
        "five, six: seven? eight!": True,
    }
    assert list(builtin_texts.without_repetitions([*texts, *texts])) == [text for text in texts if texts[text]]


def test_a_text_that_another_rule_cached_is_not_read(library, tmp_path, monkeypatch):
    standard_library_docstrings(tmp_path, library)
    before = {*tmp_path.glob("*.txt")}
    monkeypatch.setattr(builtin_texts, "MAX_REPEATED", 0.5)
    standard_library_docstrings(tmp_path, library)
    assert len({*tmp_path.glob("*.txt")} - before) == 1


def test_it_is_read_from_the_cache_while_that_is_whole_and_the_sources_are_the_same(library, tmp_path, monkeypatch):
    cache = tmp_path / "a/cache"
    text = standard_library_docstrings(cache, library)
    (kept,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(builtin_texts, "paragraphs", lambda path: pytest.fail("parsed"))
        assert standard_library_docstrings(cache, library) == text
    whole = kept.read_bytes()
    for damaged in (b"", whole[:-3], whole[:-1] + b"!", b"\0" * len(whole), whole.replace(b"\n", b" ")):
        kept.write_bytes(damaged)
        assert standard_library_docstrings(cache, library) == text
        assert kept.read_bytes() == whole
    (library / "json/tool.py").write_text('"Another tool."')
    assert standard_library_docstrings(cache, library).endswith(b"Another tool.")
    assert len(list(cache.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_none(library, tmp_path):
    (tmp_path / "file").write_text("")
    assert standard_library_docstrings(tmp_path / "file" / "cache", library).decode() == TEXT


def test_nothing_of_a_file_that_is_no_python(tmp_path):
    for content in (b"def broken(", b"\0", b"\xff"):
        (tmp_path / "x.py").write_bytes(content)
        assert list(paragraphs(tmp_path / "x.py")) == []


def test_the_default_corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    loaded = load_corpus()
    assert loaded.name == "docstrings"
    assert 900_000 < len(loaded.text) < 1_600_000
    words = re.findall(r"\w+", loaded.text)
    assert len(set(zip(*(words[start:] for start in range(4)), strict=False))) > 0.95 * len(words)
    assert loaded.text.count(" the ") > 6_000
    assert len(set(loaded.text)) < 200
    assert os.listdir(tmp_path / "datasets")[0].startswith("docstrings-")
    before = time.process_time()
    assert load_corpus("docstrings") == loaded
    assert time.process_time() - before < 2


@pytest.mark.parametrize("name", ["docstrings", "source"])
def test_a_python_without_the_sources_of_its_library(name, monkeypatch):
    monkeypatch.setattr(builtin_texts, f"standard_library_{name}", lambda cache: b"")
    with pytest.raises(CorpusError, match=f"{name} needs the sources of Python's standard library"):
        load_corpus(name)


def lines(*numbers):
    """Lines of a source that are passages by themselves, each unlike the others."""
    return "".join(f"x{n} = {str(n) * 80}\n" for n in numbers)


def write(folder, files):
    for path, source in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(source if isinstance(source, bytes) else source.encode())
    return folder


def documents(library, cache="cache"):
    return standard_library_source(library.parent / cache, library).decode().split("\n\n")


def test_the_source_has_whole_files_of_the_library_and_its_tests_in_ascii(tmp_path):
    library = write(
        tmp_path / "library",
        {
            "ast.py": "\n\nname = 'Löwis'  # €\r\n\n",
            "json/tool.py": "def tool():\n\treturn 1\n",
            "test/test_ast.py": "1 + 1",
            "json/empty.py": "\n",
            **{"os.py": "é".encode("latin-1"), "io.py": b"\0\xff", "ast.txt": "no source"},
            **{"encodings/cp1252.py": "table", "pydoc_data/topics.py": "topics", "_sysconfigdata_x86.py": "a build's"},
            **{"site-packages/json.py": "installed", "mine.py": "not of the library"},
        },
    )
    expected = {"name = 'L\\xf6wis'  # \\u20ac", "def tool():\n\treturn 1", "1 + 1"}
    assert {*documents(library)} == expected
    assert ast.literal_eval("'L\\xf6wis'") == "Löwis"  # the escapes mean the same


def test_the_place_of_a_file_depends_on_its_name_only(tmp_path):
    names = [f"json/m{n}.py" for n in range(40)]
    order = [
        int(text[1:].split(" ")[0])
        for text in documents(write(tmp_path / "a", {n: lines(i) for i, n in enumerate(names)}))
    ]
    assert sorted(order) == [*range(40)] != order
    assert abs(np.corrcoef(order, range(40))[0, 1]) < 0.4
    fewer = documents(write(tmp_path / "b", {n: lines(i) for i, n in enumerate(names) if i % 3}), "other")
    assert [int(text[1:].split(" ")[0]) for text in fewer] == [n for n in order if n % 3]


def test_a_file_with_more_than_a_twentieth_of_earlier_passages_is_left_out(tmp_path):
    names = [text for text in documents(write(tmp_path / "a", {f"json/{c}.py": c for c in "abcdefgh"}))]
    sources = dict(
        zip(
            names,
            [
                lines(*range(40)),  # the first one
                lines(*range(38, 80)),  # 2 of 42
                lines(*range(76, 117)),  # 4 of 41: left out
                lines(*range(90, 117)),  # new, as what is left out does not count
                lines(*range(40)) + lines(200),  # a near-copy
                "# " + lines(3),  # shifted by two characters: another passage
                lines(3) * 2,  # a copy
                "",
            ],
            strict=True,
        )
    )
    library = write(tmp_path / "b", {f"json/{c}.py": source for c, source in sources.items()})
    texts = [*sources.values()]
    assert documents(library, "other") == [texts[n].strip("\n") for n in (0, 1, 3, 5)]


@pytest.mark.rare
def test_the_source_of_this_python(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    loaded = load_corpus("source")
    train, validation = loaded.split()
    assert len(loaded.text) > 5_000_000
    assert len(set(loaded.text)) <= 100
    assert verbatim_overlap(train, validation) < MIN_OVERLAP_TO_REPORT
    shares = [np.mean([line.startswith("    def test") for line in part.splitlines()]) for part in (train, validation)]
    assert shares[1] == pytest.approx(shares[0], rel=0.3)  # the parts are of the same kinds of files
    assert loaded.sha256 == hashlib.sha256(loaded.text.encode()).hexdigest()
    (cached,) = (tmp_path / "datasets").iterdir()
    monkeypatch.setattr(builtin_texts, "ascii_source", lambda path: pytest.fail("read"))
    assert load_corpus("source") == loaded
    cached.write_bytes(cached.read_bytes()[:-1])
    with pytest.raises(pytest.fail.Exception, match="read"):
        load_corpus("source")


CONTENT = b"First Citizen:\n" * 9000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class WithoutTls(urllib.request.HTTPSHandler):
    """Speaks plain HTTP where https is asked for, so that a test needs no certificate."""

    def https_open(self, request):
        return self.do_open(http.client.HTTPConnection, request)


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        getattr(self, f"do_{self.path.strip('/')}")()

    def send(self, content, length=None):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def do_whole(self):
        self.send(CONTENT)

    def do_cut(self):
        self.send(CONTENT[:1000], length=len(CONTENT))

    def do_other(self):
        self.send(CONTENT[:-1] + b"!")

    def do_endless(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.server.sent += self.wfile.write(b"\0" * 65536)
        except OSError:
            pass

    def do_silent(self):
        self.server.held.wait(10)

    def do_missing(self):
        self.send_error(404)

    def do_elsewhere(self):
        self.redirect("https", "whole")

    def do_plain(self):
        self.redirect("http", "whole")

    def do_local(self):
        self.send_response(302)
        self.send_header("Location", "file:///etc/passwd")
        self.end_headers()

    def do_circle(self):
        self.redirect("https", "circle")

    def redirect(self, scheme, path):
        self.send_response(302)
        self.send_header("Location", f"{scheme}://127.0.0.1:{self.server.server_port}/{path}")
        self.end_headers()

    def log_message(self, *_):
        self.server.asked.append(self.path)


@pytest.fixture(scope="module")
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.asked, server.sent, server.held, server.daemon_threads = [], 0, threading.Event(), True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.held.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def fetch(server, tmp_path):
    """Downloads a page of the server; whatever goes wrong, nothing is there that was not there before."""

    def fetch(page, scheme="https", sha256=SHA256):
        server.asked.clear()
        opener = urllib.request.build_opener(HttpsOnly, WithoutTls)
        url = f"{scheme}://127.0.0.1:{server.server_port}/{page}"
        before = sorted(tmp_path.iterdir())
        try:
            return download(url, tmp_path / "text", sha256, len(CONTENT), opener)
        except DownloadError:
            assert sorted(tmp_path.iterdir()) == before
            raise

    return fetch


def test_what_is_as_promised_is_kept(fetch, tmp_path):
    assert fetch("whole") == CONTENT
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"text": CONTENT}


def test_a_redirect_over_https_is_followed(fetch, server):
    assert fetch("elsewhere") == CONTENT
    assert server.asked == ["/elsewhere", "/whole"]


@pytest.mark.parametrize("scheme", ["http", "ftp", "file"])
def test_only_https_is_asked(fetch, server, scheme):
    with pytest.raises(DownloadError, match="not https"):
        fetch("whole", scheme)
    assert server.asked == []


@pytest.mark.parametrize("page", ["plain", "local"])
def test_a_redirect_to_anything_else_is_not_followed(fetch, server, page):
    with pytest.raises(DownloadError, match=r"not https|not allowed"):
        fetch(page)
    assert server.asked == [f"/{page}"]


@pytest.mark.parametrize(
    ("page", "said"),
    [("cut", "only 1000 bytes"), ("other", "sha256"), ("missing", "Not Found|404"), ("circle", "redirect|infinite")],
)
def test_what_is_not_as_promised_is_not_kept(fetch, page, said):
    with pytest.raises(DownloadError, match=said):
        fetch(page)


def test_what_does_not_end_is_left(fetch, server):
    with pytest.raises(DownloadError, match="more than"):
        fetch("endless")
    assert server.sent < 100 * len(CONTENT)


def test_who_does_not_answer_is_left(fetch, monkeypatch):
    monkeypatch.setattr(builtin_texts, "TIMEOUT_SECONDS", 0.05)
    with pytest.raises(DownloadError, match="timed out"):
        fetch("silent")


def test_who_answers_too_slowly_is_left(fetch, monkeypatch):
    monkeypatch.setattr(builtin_texts, "DEADLINE_SECONDS", -1)
    with pytest.raises(DownloadError, match="longer than"):
        fetch("whole")


def test_what_was_there_before_stays(fetch, tmp_path):
    (tmp_path / "text").write_bytes(b"before")
    with pytest.raises(DownloadError):
        fetch("other")
    assert (tmp_path / "text").read_bytes() == b"before"

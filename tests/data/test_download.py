"""Downloads from a server in this process that answers as servers should not."""

import hashlib
import http.client
import http.server
import threading
import urllib.request

import pytest

from keras_seq.data import download as module
from keras_seq.data.download import DownloadError, HttpsOnly, download

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
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.05)
    with pytest.raises(DownloadError, match="timed out"):
        fetch("silent")


def test_who_answers_too_slowly_is_left(fetch, monkeypatch):
    monkeypatch.setattr(module, "DEADLINE_SECONDS", -1)
    with pytest.raises(DownloadError, match="longer than"):
        fetch("whole")


def test_what_was_there_before_stays(fetch, tmp_path):
    (tmp_path / "text").write_bytes(b"before")
    with pytest.raises(DownloadError):
        fetch("other")
    assert (tmp_path / "text").read_bytes() == b"before"


def test_the_address_in_use_is_https():
    from keras_seq.data import corpus

    assert corpus.SHAKESPEARE_URL.startswith("https://")
    assert len(corpus.SHAKESPEARE_SHA256) == 64

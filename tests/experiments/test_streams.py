"""Scripts started without some of their streams, or with streams of few characters."""

import io
import os
import subprocess
import sys

import pytest

from experiments.frame.streams import read_standard_input

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
SCRIPT = """
import os, sys
sys.path.insert(0, {root!r})
import experiments.frame.streams  # the package itself prepares the streams
print("out \\u2013 \\xfc \\udcff")
print("err \\u2013", file=sys.stderr)
with open({log!r}, "w", encoding="ascii") as file:
    file.write(f"{{file.fileno() > 2}} {{os.get_inheritable(2)}} {{sys.stdin.read()!r}}")
    os.write(2, b"a note of a library\\n")
"""


# The numpy backend, so that nothing large is imported and nothing has to be installed.
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_lead_nowhere(tmp_path, closed):
    """Where 2 was closed, TensorFlow's notes went into the next file that was opened; Python ended before that."""
    (tmp_path / "script.py").write_text(SCRIPT.format(root=ROOT, log=str(tmp_path / "log")), encoding="utf-8")
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    line = f"exec {sys.executable} {tmp_path / 'script.py'} {closed}"
    done = subprocess.run(["sh", "-c", line], env=environment, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_text() == "True True ''"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_stream_cannot_hold_is_written_in_ascii(tmp_path, encoding):
    (tmp_path / "script.py").write_text(SCRIPT.format(root=ROOT, log=str(tmp_path / "log")), encoding="utf-8")
    environment = {**os.environ, "KERAS_BACKEND": "numpy", "PYTHONIOENCODING": encoding}
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, env=environment, input=b"", capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = {
        "ascii": rb"out \u2013 \xfc \udcff",
        "latin-1": b"out \\u2013 \xfc \\udcff",
        "utf-8": b"out \xe2\x80\x93 \xc3\xbc \\udcff",
    }
    assert done.stdout.strip() == shown[encoding]


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_standard_input_is_read_whole_and_has_to_be_utf_8(monkeypatch, errors):
    for text in ("", "a\u732b\n\nb"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8", errors))
        assert read_standard_input() == text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff"), "utf-8", errors))
    with pytest.raises(ValueError, match=r"^Standard input is not UTF-8 from offset 2 on: "):
        read_standard_input()

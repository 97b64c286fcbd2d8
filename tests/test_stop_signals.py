import errno
import io
import os
import signal
import sys

import pytest

from keras_seq import files
from keras_seq.files import GuardedOutput, StopRequest, StopRequested, guard_output, signal_handler

pytestmark = pytest.mark.usefixtures("terminal")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class Gone(io.StringIO):
    """A pipe that nobody reads."""

    tries = 0

    def write(self, text):
        self.tries += 1
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@pytest.fixture
def stop():
    return StopRequest()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_request_is_noted_and_the_handlers_are_given_back(stop, number, capfd):
    before = [signal.getsignal(n) for n in SIGNALS]
    with stop.listening():
        os.kill(os.getpid(), number)
    assert stop.signal_number == number
    assert [signal.getsignal(n) for n in SIGNALS] == before
    assert capfd.readouterr().err == "\nStopping after the running steps ...\n"


def test_under_nohup_a_closed_terminal_asks_for_nothing(stop):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop.listening():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert stop.signal_number is None


def test_a_handler_that_python_does_not_know_is_left_alone_afterwards():
    def handler(*_):
        raise AssertionError

    with signal_handler(handler):
        pass
    assert signal.getsignal(signal.SIGTERM) is not handler


@pytest.mark.parametrize("number", SIGNALS)
def test_it_ends_what_may_be_cut_off_at_once(stop, number):
    done = []

    def measure(name):
        with stop.interruptible():
            done.append(name)
            os.kill(os.getpid(), number)
            done.append("the rest of it")

    with stop.listening():
        for name in ("first", "second, asked for by now"):
            with pytest.raises(StopRequested):
                measure(name)
    assert (done, stop.signal_number) == (["first"], number)


def test_what_may_be_cut_off_is_over_when_its_block_is(stop):
    with stop.listening():
        with stop.interruptible():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.signal_number == signal.SIGTERM


@pytest.mark.parametrize(
    ("first", "second", "seconds", "at_once"),
    [
        (signal.SIGINT, signal.SIGINT, 2.0, True),
        (signal.SIGINT, signal.SIGTERM, 0.0, True),
        (signal.SIGTERM, signal.SIGTERM, 0.1, False),  # `timeout` sends it to the process and to its group
        (signal.SIGHUP, signal.SIGHUP, 2.0, False),  # the system's, and the shell's
        (signal.SIGHUP, signal.SIGTERM, 2.0, True),
    ],
)
def test_the_second_request_stops_at_once_where_it_is_one(stop, monkeypatch, first, second, seconds, at_once):
    now = [10.0]
    monkeypatch.setattr(files.time, "monotonic", lambda: now[0])
    stop.on_signal(first)
    now[0] += seconds
    if at_once:
        with pytest.raises(KeyboardInterrupt) as pressed:
            stop.on_signal(second)
        assert pressed.value.args == (second,)
    else:
        stop.on_signal(second)
    assert stop.signal_number == first


def test_an_output_that_nobody_reads_asks_once_and_raises_nowhere(stop, monkeypatch, capfd):
    gone = Gone()
    monkeypatch.setattr(sys, "stdout", gone)
    with stop.listening():
        for _ in range(3):
            print("a line", flush=True)
    assert stop.signal_number == signal.SIGPIPE
    assert sys.stdout is gone
    assert "Standard output cannot be written (Broken pipe)." in capfd.readouterr().err


def test_what_was_asked_first_counts_though_the_output_goes_with_the_terminal(stop, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Gone())
    with stop.listening():
        os.kill(os.getpid(), signal.SIGHUP)
        print("a line")
    assert stop.signal_number == signal.SIGHUP


def test_an_output_that_was_lost_before_is_reported_to_the_next_guard(stop, monkeypatch):
    gone, errors = Gone(), []
    monkeypatch.setattr(sys, "stdout", gone)
    with guard_output(errors.append):
        print("a line")
        with stop.listening():
            assert stop.signal_number == signal.SIGPIPE
            print("another")
    assert len(errors) == 1
    assert sys.stdout is gone


def test_an_output_that_is_read_is_handed_over_line_by_line():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    output = GuardedOutput(stream, on_error=None)
    print("ä line", file=output)
    assert stream.buffer.getvalue() == "ä line\n".encode()
    assert (output.encoding, output.error) == ("utf-8", None)


def test_a_process_without_standard_output_is_none_the_worse(stop, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with stop.listening():
        print("a line")
    assert stop.signal_number is None

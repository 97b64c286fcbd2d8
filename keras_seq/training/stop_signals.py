"""A stop on request: Ctrl-C, SIGTERM, a terminal that closes (SIGHUP), a standard output that cannot be written.

    asked while steps run       they end; a checkpoint; `Interrupted`
    asked while it validates    the validation ends at once, unfinished; a checkpoint; `Interrupted`
    asked a second time         KeyboardInterrupt at once, without a checkpoint

Under nohup, which has SIGHUP ignored, a closed terminal asks for nothing.
"""

import contextlib
import os
import signal
import sys
import threading
import time

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
CLOSED = getattr(signal, "SIGHUP", None)
UNREAD = getattr(signal, "SIGPIPE", signal.SIGTERM)  # stands for an output that cannot be written
ONE_REQUEST = 1.0  # seconds in which the same signal counts once: `timeout` sends it to the process and to its group


class StopAsked(KeyboardInterrupt):
    """Raised where a stop is asked for in a `StopRequest.interruptible` block."""


@contextlib.contextmanager
def handling(handler):
    """Has the signals that ask for a stop call a function until the block ends; in the main thread only."""
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in NAMES if hasattr(signal, name)):
                if number != CLOSED or signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


class Output:
    """A text stream whose reader may go away: what cannot be written is dropped, and somebody is told once.

    Args:
        stream: such as `sys.stdout`. Lines are handed over at once, also in a pipe.
        on_fault: a function of the OSError.

    `fault` is the first OSError, None before it.
    """

    def __init__(self, stream, on_fault):
        self.stream, self.on_fault, self.fault = stream, on_fault, None

    def write(self, text):
        """As every text stream does."""
        with self._watched():
            self.stream.write(text)
            if text.endswith("\n"):
                self.stream.flush()
        return len(text)

    def flush(self):
        """As every text stream does."""
        with self._watched():
            self.stream.flush()

    @contextlib.contextmanager
    def _watched(self):
        try:
            yield
        except OSError as error:
            if self.fault is None:
                self.fault = error
                self.on_fault(error)

    def __getattr__(self, name):
        return getattr(self.stream, name)


@contextlib.contextmanager
def watching_output(on_fault):
    """Has a function told, once, where standard output cannot be written until the block ends, or could not before."""
    before = sys.stdout
    if before is None:  # closed before Python began: print writes nothing
        yield
        return
    nested = isinstance(before, Output)  # then the inner one has it alone
    with contextlib.redirect_stdout(Output(before.stream if nested else before, on_fault)):
        if nested and before.fault is not None:
            on_fault(before.fault)
        yield


class StopRequest:
    """Whether somebody asked for a stop: `number` is that of the signal, None while nobody has."""

    def __init__(self):
        self.number = None
        self._since, self._interruptible = 0.0, False

    @contextlib.contextmanager
    def listening(self):
        """Takes the signals, and faults of standard output, for a request until the block ends."""
        with handling(self.ask), watching_output(self._unread):
            yield

    @contextlib.contextmanager
    def interruptible(self):
        """A block that changes nothing that lasts: a request ends it with `StopAsked`, one made before it too."""
        try:
            self._interruptible = True
            if self.number is not None:
                raise StopAsked(self.number)
            yield
        finally:
            self._interruptible = False

    def ask(self, number, frame=None):
        """Asks for a stop; as a handler of signals, between two instructions of the main thread.

        Raises:
            StopAsked: in an `interruptible` block.
            KeyboardInterrupt: it is the second time.
        """
        now = time.monotonic()
        if self.number is None:
            self.number, self._since = number, now
            what = "the validation; it is done again at the start of --resume" if self._interruptible else None
            _say(f"\nStopping {what or 'after the steps that are running'} ...\n")
            if self._interruptible:
                raise StopAsked(number)
        elif number != CLOSED and (number != self.number or now - self._since >= ONE_REQUEST):
            raise KeyboardInterrupt(number)

    def _unread(self, error):
        if self.number is None:
            _say(f"\nStandard output cannot be written ({error.strerror}).\n")
            self.ask(UNREAD)


def _say(text):
    with contextlib.suppress(OSError):  # the terminal, or the reader of `2>&1 | tee log`, may be gone by now
        os.write(2, text.encode())  # print may be what was interrupted

"""Stop a training on request: Ctrl-C, SIGTERM, a closing terminal (SIGHUP), or a standard output that is closed.

    first request while steps run     they finish; a checkpoint; `TrainingInterrupted`
    first request while it validates  the validation ends at once, unfinished; a checkpoint; `TrainingInterrupted`
    second request                    KeyboardInterrupt at once, without a checkpoint

Under nohup, which ignores SIGHUP, a closed terminal is not a request.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

SIGNAL_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
TERMINAL_CLOSED = getattr(signal, "SIGHUP", None)
OUTPUT_CLOSED = getattr(signal, "SIGPIPE", signal.SIGTERM)  # stands for an output that cannot be written
SAME_REQUEST_SECONDS = 1.0  # the same signal within it counts once: `timeout` signals the process and its group


class StopRequested(KeyboardInterrupt):
    """Signal a stop request inside a `StopRequest.interruptible` block."""


@contextlib.contextmanager
def signal_handler(handler: Callable):
    """Install a handler for the stop signals inside a `with` block; has no effect outside of the main thread."""
    previous = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in SIGNAL_NAMES if hasattr(signal, name)):
                if number != TERMINAL_CLOSED or signal.getsignal(number) is not signal.SIG_IGN:
                    previous[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


class GuardedOutput:
    """Wrap a text stream whose reader may close: failed writes are dropped and the first one is reported."""

    def __init__(self, stream: TextIO, on_error: Callable):
        self.stream, self.on_error, self.error = stream, on_error, None

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        with self._guarded():
            self.stream.write(text)
            if text.endswith("\n"):
                self.stream.flush()
        return len(text)

    def flush(self):
        """Flush the stream."""
        with self._guarded():
            self.stream.flush()

    @contextlib.contextmanager
    def _guarded(self):
        try:
            yield
        except OSError as error:
            if self.error is None:
                self.error = error
                self.on_error(error)

    def __getattr__(self, name):
        """Return an attribute of the guarded stream."""
        return getattr(self.stream, name)


@contextlib.contextmanager
def guard_output(on_error: Callable):
    """Guard standard output inside a `with` block."""
    stdout = sys.stdout
    if stdout is None:  # closed before Python started: print writes nothing
        yield
        return
    nested = isinstance(stdout, GuardedOutput)  # the inner guard replaces the outer one
    with contextlib.redirect_stdout(GuardedOutput(stdout.stream if nested else stdout, on_error)):
        if nested and stdout.error is not None:
            on_error(stdout.error)
        yield


class StopRequest:
    """Record whether a stop was requested: `signal_number` is that of the signal, None without a request."""

    def __init__(self):
        self.signal_number = None
        self._request_time, self._interruptible = 0.0, False

    @contextlib.contextmanager
    def listening(self):
        """Handle stop signals and errors of standard output inside a `with` block."""
        with signal_handler(self.on_signal), guard_output(self._on_output_error):
            yield

    @contextlib.contextmanager
    def interruptible(self):
        """Mark a block without lasting effects: a request, an earlier one included, ends it with `StopRequested`."""
        try:
            self._interruptible = True
            if self.signal_number is not None:
                raise StopRequested(self.signal_number)
            yield
        finally:
            self._interruptible = False

    def on_signal(self, signal_number: int, frame=None):
        """Handle a stop signal."""
        now = time.monotonic()
        if self.signal_number is None:
            self.signal_number, self._request_time = signal_number, now
            what = "the validation; it is repeated at the start of --resume" if self._interruptible else None
            _write_stderr(f"\nStopping {what or 'after the running steps'} ...\n")
            if self._interruptible:
                raise StopRequested(signal_number)
        elif signal_number != TERMINAL_CLOSED and (
            signal_number != self.signal_number or now - self._request_time >= SAME_REQUEST_SECONDS
        ):
            raise KeyboardInterrupt(signal_number)

    def _on_output_error(self, error):
        if self.signal_number is None:
            _write_stderr(f"\nStandard output cannot be written ({error.strerror}).\n")
            self.on_signal(OUTPUT_CLOSED)


def _write_stderr(text):
    with contextlib.suppress(OSError):  # the terminal, or the reader of `2>&1 | tee log`, may be gone by now
        os.write(2, text.encode())  # not print: the signal may have interrupted one

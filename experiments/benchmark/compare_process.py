"""Run `experiments.compare` of this checkout or another in a process, and follow its metrics.jsonl while it grows."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from experiments.benchmark.settings import BenchmarkConfig

POLL_SECONDS = 0.005


class WorkerError(Exception):
    """A process ended early; the message is the last line that it printed."""


def process_peak_bytes(pid: int | str = "self") -> int | None:
    """Return the peak memory of a process; None where the system has no /proc.

    `getrusage` would count the memory of the parent, from which a process starts, too.
    """
    status = pathlib.Path(f"/proc/{pid}/status")
    kilobytes = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return 1024 * int(kilobytes[1]) if kilobytes else None


class CompareProcess:
    """A process of `experiments.compare`, with a log folder of its own that `close` removes.

    Args:
        config: Options of the benchmark.
        checkout: Folder of the checkout of keras_seq to run.
        arguments: Arguments of the command line.
    """

    def __init__(self, config: BenchmarkConfig, checkout: str | pathlib.Path, *arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="benchmark-")
        self.output, self.metrics = pathlib.Path(self.folder.name) / "output.txt", None
        command = [sys.executable, "-m", "experiments.compare", "--log-dir", self.folder.name, *map(str, arguments)]
        environment = {**config.environment(config.backend), "PYTHONPATH": str(checkout)}
        self.start_time = time.perf_counter()
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=output, stderr=output)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the process."""
        return time.perf_counter() - self.start_time

    def new_lines(self) -> list[dict]:
        """Return the lines of metrics.jsonl that were not yet returned."""
        if self.metrics is None and (paths := [*pathlib.Path(self.folder.name).glob("compare/*/*/metrics.jsonl")]):
            self.metrics = paths[0].open(encoding="utf-8")
        lines = []
        while self.metrics is not None and (line := self.metrics.readline()):
            while not line.endswith("\n"):  # it is being written
                line += self.metrics.readline()
            lines.append(json.loads(line))
        return lines

    def wait_for_lines(self) -> list[dict]:
        """Return the next lines, at least one; none when the process has ended.

        Raises:
            WorkerError: It has ended with an error.
        """
        while True:
            ended = self.process.poll() is not None
            if (lines := self.new_lines()) or (ended and self.process.returncode == 0):
                return lines
            if ended:
                output = self.output.read_text(encoding="utf-8", errors="replace")
                *_, last = ("no message", *output.strip().splitlines())
                raise WorkerError(f"{last} (exit status {self.process.returncode})")
            time.sleep(POLL_SECONDS)

    def close(self):
        """End the process and remove its folder."""
        self.process.kill()
        self.process.wait()
        if self.metrics is not None:
            self.metrics.close()
        self.folder.cleanup()

"""Time the steps of `experiments.compare` as it is run, in turns with others: its process is stopped in between.

    SIGCONT   wait for a line of metrics.jsonl   wait for another, `seconds` later: tokens between them / time   SIGSTOP

The time between two lines has all that a step needs: its batch, the optimizer, logs, and checkpoints when they are due.
Validations are too far apart to come.
"""

import dataclasses
import os
import signal
import time

from experiments.benchmark.case import Case
from experiments.benchmark.compare_process import CompareProcess, process_peak_bytes
from experiments.benchmark.settings import BenchmarkConfig

ENDLESS = ("--tokens", 10**9, "--train.validate-every", 10**6)


class PausedTraining:
    """A training that runs while `go` waits for it, with the answers of a worker.

    Args:
        config: Options of the benchmark.
        case: The case.
        implementation: "keras_seq", "float32" or "before".
    """

    def __init__(self, config: BenchmarkConfig, case: Case, implementation: str):
        self.case, self.seconds, self.calls = case, config.seconds, 0
        case = dataclasses.replace(case, precision="float32") if implementation == "float32" else case
        arguments = (*case.compare_arguments, "--corpus", "pydoc", *ENDLESS)
        self.training = CompareProcess(config, config.checkout(implementation), *arguments)

    def go(self) -> dict:
        """Wait until steps are made, the first time; train, and return the speed: the second time, in a warm-up."""
        self.calls += 1
        if self.calls == 1:
            self.training.wait_for_lines()
            answer = {}
        else:
            self.training.new_lines()
            self._send(signal.SIGCONT)
            answer = self._measure()
        self._send(signal.SIGSTOP)
        return {"tokens_per_step": self.case.tokens_per_step} if self.calls == 2 else answer

    def _send(self, signal_number):
        os.kill(self.training.process.pid, signal_number)

    def _measure(self):
        *_, first = self.training.wait_for_lines()  # its interval has the pause
        start_time, duration = time.perf_counter(), 0.0
        while duration < self.seconds:
            *_, last = self.training.wait_for_lines()
            duration = time.perf_counter() - start_time
        speed = (last["tokens"] - first["tokens"]) / duration
        peak_bytes = process_peak_bytes(self.training.process.pid)
        return {"tokens_per_second": speed, "peak_megabytes": peak_bytes and peak_bytes / 2**20}

    def close(self):
        """End the training."""
        self.training.close()

"""Workers take turns: each lives in a process of its own, has warmed up, and counts when it is told to.

    worker -> {"ready": true, ...}       then, for each line "go" it reads,
    worker -> {"tokens_per_second": ..., "peak_megabytes": ...}

So what slows the machine down for a while slows all of them, and the ratio of two is taken turn by turn.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


class Worker:
    """A process that does one row's work in one way.

    Args:
        row: what to do.
        by: ours, keras or torch.
        seconds: how long a counted run takes about.
    """

    def __init__(self, row, by, seconds):
        # PyTorch's starts from its file, for `experiments` would start TensorFlow beside it; with -P, for else our
        # inspect.py would stand before Python's own.
        start = ["-P", str(HERE / "benchmark_torch.py")] if by == "torch" else ["-m", "experiments.benchmark_keras"]
        given = json.dumps({"by": by, "seconds": seconds, **dataclasses.asdict(row)})
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        # Keras warns through stdout at times; a worker's own lines are the ones that are JSON.
        self.process = subprocess.Popen([sys.executable, *start, given], cwd=HERE.parent, env=dict(os.environ), **pipes)
        self.about = self._answer()

    def __call__(self) -> dict:
        """One counted run."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.close()
        raise RuntimeError(f"{' '.join(self.process.args[1:])} ended with status {self.process.returncode}.")

    def close(self):
        """Lets the process end."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def in_turns(row, ways, runs, seconds) -> dict:
    """The counted runs of a row, by the way they are done.

    Args:
        row: what to do.
        ways: of ours, keras and torch.
        runs: counted ones, after one to warm up.
        seconds: how long each takes about.

    Returns:
        For each way the median `tokens_per_second`, all `runs`, the `peak_megabytes` of its process, and what it says
        about itself.
    """
    with contextlib.ExitStack() as afterwards:
        workers = {}
        for way in ways:
            workers[way] = Worker(row, way, seconds)
            afterwards.callback(workers[way].close)
        turns = [{way: worker() for way, worker in workers.items()} for _ in range(runs)]
        found = {}
        for way, worker in workers.items():
            speeds = [turn[way]["tokens_per_second"] for turn in turns]
            found[way] = {
                "tokens_per_second": statistics.median(speeds),
                "runs": speeds,
                "peak_megabytes": max(turn[way]["peak_megabytes"] for turn in turns),
                **worker.about,
            }
        return found


def ratio(summaries, way) -> float | None:
    """How many times as fast ours is: the median of the ratios turn by turn. None where the other way was not taken."""
    if way not in summaries:
        return None
    pairs = zip(summaries["ours"]["runs"], summaries[way]["runs"], strict=True)
    return statistics.median(ours / other for ours, other in pairs)

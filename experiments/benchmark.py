"""How fast is a training step, against Keras as it comes and against PyTorch?

    python -m experiments.benchmark                          # with `pip install torch` PyTorch is measured too
    python -m experiments.benchmark --rows 1 3 --runs 9      # some rows, by their numbers
    python -m experiments.benchmark --growth                 # how time grows with T, B, D, V and layers too
    python -m experiments.benchmark --smoke                  # seconds, tiny

Each row is the same work three times, in processes that take turns: one run to warm up, then five counted ones; a ratio
is taken turn by turn, and the medians are told. Besides: what fraction of the matmul speed of this machine, measured in
the same run, is reached; the largest memory of each process; how fast the pipeline feeds the step.
Half an hour on 2 cores with PyTorch.
"""

import dataclasses
import importlib.util
import pathlib
import statistics
import time
from typing import Annotated

import numpy as np
import tensorflow as tf
import tyro

from experiments import benchmark_report
from experiments.benchmark_rows import ROWS, TINY, Row, growth
from experiments.benchmark_turns import in_turns, ratio
from experiments.options import check_options
from experiments.runs import begin, versions
from experiments.startup import one_sentence
from keras_seq.data import RandomWindows

PEAK_SIZE = 2048  # of the square matrices whose product tells the matmul speed
PIPELINE_STEPS = 200


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Measure training steps."""

    rows: tuple[int, ...] = ()
    """Numbers of the rows to measure, from 1; all where none is given."""
    runs: int = 5
    """Counted runs of each row and way."""
    seconds: float = 2.0
    """How long a counted run takes about; at least one step."""
    growth: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also measure how time and memory grow with each size, of ours alone."""
    log_dir: str = "logs"
    """The report goes to LOG_DIR/benchmark/UTC-TIME/."""
    resume: str | None = None
    """A measurement is not gone on with: begin anew."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""

    def __post_init__(self):
        check_options(self, runs=1, seconds=0)
        for number in self.rows:
            if not 1 <= number <= len(ROWS):
                raise ValueError(f"--rows {number}: expected numbers from 1 to {len(ROWS)}.")
        if self.resume is not None:
            raise ValueError(f"--resume {self.resume}: a measurement cannot be gone on with; begin anew.")

    @property
    def chosen(self) -> tuple[Row, ...]:
        """The rows to measure."""
        if self.smoke:
            return TINY
        return tuple(ROWS[number - 1] for number in self.rows) or ROWS


def matmul_flops(dtype, size) -> float:
    """FLOP/s of a square matrix product in TensorFlow, the best of 5 series."""
    a, b = (tf.cast(tf.random.normal((size, size)), dtype) for _ in range(2))
    product = tf.function(tf.matmul)
    product(a, b).numpy()
    speeds = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(3):
            last = product(a, b)
        last.numpy()
        speeds.append(3 * 2 * size**3 / (time.perf_counter() - begun))
    return max(speeds)


def pipeline_speed(row: Row) -> float:
    """Tokens per second of random crops of the row's batch, by themselves; the median of 5 series."""
    ids = np.random.default_rng(0).integers(row.vocabulary_size, size=max(1_000_000, 2 * row.length))
    batches = iter(RandomWindows(ids, row.batch_size, row.length).dataset())
    next(batches)
    speeds = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(PIPELINE_STEPS):
            next(batches)
        speeds.append(PIPELINE_STEPS * row.batch_size * row.length / (time.perf_counter() - begun))
    return statistics.median(speeds)


def measure(settings: Benchmark) -> dict:
    """All that benchmark.json says."""
    ways = ["ours", "keras"]
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed, so it is not measured; `pip install torch` changes that.")
    else:
        ways.append("torch")
    size = 64 if settings.smoke else PEAK_SIZE
    peaks = {dtype: matmul_flops(dtype, size) for dtype in ("float32", "bfloat16")}
    found = {"versions": versions(), "matmul_flops": peaks, "rows": [], "growth": {}}
    for row in settings.chosen:
        summaries = in_turns(row, ways, settings.runs, settings.seconds)
        ours = summaries["ours"]
        entry = {
            "name": row.name,
            "row": dataclasses.asdict(row),
            "measured": summaries,
            "speedup_vs_torch": ratio(summaries, "torch"),
            "speedup_vs_keras": ratio(summaries, "keras"),
            "matmul_utilization": ours["flops_per_token"] * ours["tokens_per_second"] / peaks[row.precision],
            "pipeline": None if row.kind == "attention" else ours["tokens_per_second"] / pipeline_speed(row),
        }
        found["rows"].append(entry)
        print(benchmark_report.line(entry), flush=True)
    if settings.growth:
        ladders = {"attention, T": TINY[1:]} if settings.smoke else growth()
        for ladder, rows in ladders.items():
            found["growth"][ladder] = []
            for row in rows:
                ours = in_turns(row, ["ours"], settings.runs, settings.seconds)["ours"]
                found["growth"][ladder].append({"row": dataclasses.asdict(row), **ours})
                print(f"{ladder}: {benchmark_report.seconds_of(row, ours) * 1000:.1f} ms a step", flush=True)
    return found


def tiny(settings: Benchmark) -> Benchmark:
    """The same at sizes that take seconds."""
    return dataclasses.replace(settings, runs=2, seconds=0.01)


@one_sentence("experiments.benchmark")
def main(arguments=None):
    """The command line."""
    with begin(Benchmark, "benchmark", __doc__, arguments, tiny) as (settings, folder):
        found = measure(settings)
        benchmark_report.write(pathlib.Path(folder), found)
        print(benchmark_report.closing(folder, found))


if __name__ == "__main__":
    main()

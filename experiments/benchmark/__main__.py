"""How fast is a training step, compared with keras.layers and with PyTorch?

    python -m experiments.benchmark                             # PyTorch is measured too where it is installed
    python -m experiments.benchmark --cases 1 3 --repeats 9     # some cases, by their numbers
    python -m experiments.benchmark --size-sweep                # also how time grows with T, B, D, V and layers
    python -m experiments.benchmark --smoke                     # tiny sizes, takes seconds

Time: half an hour on 2 cores with PyTorch, for training steps.

Each case is run by keras_seq, keras.layers and PyTorch in separate, interleaved processes: one warm-up, five timed
runs. Speedups are computed per round; medians are reported. The report also has the fraction of this machine's matmul
peak (measured in the same run), the peak memory of each process, and the share of the step time that the input
pipeline takes. Expected: most cases reach their targets, which the report lists beside the speedups.
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

from experiments.benchmark import report as benchmark_report
from experiments.benchmark.cases import CASES, SMOKE_CASES, Case, size_sweep
from experiments.benchmark.workers import run_interleaved, speedup
from experiments.frame.option_checks import check_options
from experiments.frame.runs import start_or_resume, versions
from experiments.frame.startup import exit_with_message
from keras_seq.data import RandomWindows

MATMUL_SIZE = 2048  # rows and columns of the matrices whose product gives the matmul peak
PIPELINE_STEPS = 200


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig:
    """Measure the speed of training steps."""

    cases: tuple[int, ...] = ()
    """Numbers of the cases to measure, from 1. By default all."""
    repeats: int = 5
    """Number of timed runs of each case and implementation."""
    seconds: float = 2.0
    """Approximate duration of a timed run, in seconds; at least one step."""
    size_sweep: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also measure how time and memory of keras_seq grow with each size."""
    log_dir: str = "logs"
    """Folder of the report: LOG_DIR/benchmark/UTC-TIME/."""
    resume: str | None = None
    """Not supported: a benchmark cannot be resumed."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""

    def __post_init__(self):
        check_options(self, repeats=1, seconds=0)
        for number in self.cases:
            if not 1 <= number <= len(CASES):
                raise ValueError(f"--cases {number}: expected numbers from 1 to {len(CASES)}.")
        if self.resume is not None:
            raise ValueError(f"--resume {self.resume}: a benchmark cannot be resumed; start a new one.")

    @property
    def selected_cases(self) -> tuple[Case, ...]:
        """Return the cases to measure."""
        if self.smoke:
            return SMOKE_CASES
        return tuple(CASES[number - 1] for number in self.cases) or CASES


def matmul_flops(dtype: str, size: int) -> float:
    """Measure the FLOP/s of a square matrix product in TensorFlow: the best of 5 series.

    Args:
        dtype: Dtype of the matrices.
        size: Rows and columns of the matrices.
    """
    a, b = (tf.cast(tf.random.normal((size, size)), dtype) for _ in range(2))
    product = tf.function(tf.matmul)
    product(a, b).numpy()
    speeds = []
    for _ in range(5):
        start_time = time.perf_counter()
        for _ in range(3):
            last = product(a, b)
        last.numpy()
        speeds.append(3 * 2 * size**3 / (time.perf_counter() - start_time))
    return max(speeds)


def pipeline_speed(case: Case) -> float:
    """Measure the input pipeline alone: tokens per second of random windows, the median of 5 series."""
    ids = np.random.default_rng(0).integers(case.vocabulary_size, size=max(1_000_000, 2 * case.sequence_length))
    batches = iter(RandomWindows(ids, case.batch_size, case.sequence_length).dataset())
    next(batches)
    speeds = []
    for _ in range(5):
        start_time = time.perf_counter()
        for _ in range(PIPELINE_STEPS):
            next(batches)
        tokens = PIPELINE_STEPS * case.batch_size * case.sequence_length
        speeds.append(tokens / (time.perf_counter() - start_time))
    return statistics.median(speeds)


def measure(config: BenchmarkConfig) -> dict:
    """Measure all selected cases and return the contents of benchmark.json."""
    implementations = ["keras_seq", "keras"]
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed and is not measured; to measure it, `pip install torch`.")
    else:
        implementations.append("torch")
    size = 64 if config.smoke else MATMUL_SIZE
    peaks = {dtype: matmul_flops(dtype, size) for dtype in ("float32", "bfloat16")}
    results = {"versions": versions(), "matmul_flops": peaks, "cases": [], "size_sweep": {}}
    for case in config.selected_cases:
        measurements = run_interleaved(case, implementations, config.repeats, config.seconds)
        measurement = measurements["keras_seq"]
        fraction = None if case.kind == "attention" else measurement["tokens_per_second"] / pipeline_speed(case)
        result = {
            "name": case.name,
            "case": dataclasses.asdict(case),
            "measurements": measurements,
            "speedup_vs_torch": speedup(measurements, "torch"),
            "speedup_vs_keras": speedup(measurements, "keras"),
            "matmul_utilization": measurement["flops_per_token"]
            * measurement["tokens_per_second"]
            / peaks[case.precision],
            "input_pipeline_fraction": fraction,
        }
        results["cases"].append(result)
        print(benchmark_report.line(result), flush=True)
    if config.size_sweep:
        sweeps = {"attention, T": SMOKE_CASES[1:]} if config.smoke else size_sweep()
        for sweep, cases in sweeps.items():
            results["size_sweep"][sweep] = []
            for case in cases:
                measurement = run_interleaved(case, ["keras_seq"], config.repeats, config.seconds)["keras_seq"]
                results["size_sweep"][sweep].append({"case": dataclasses.asdict(case), **measurement})
                print(
                    f"{sweep}: {benchmark_report.seconds_per_step(case, measurement) * 1000:.1f} ms per step",
                    flush=True,
                )
    return results


def smoke_config(config: BenchmarkConfig) -> BenchmarkConfig:
    """Return the config at sizes that take seconds."""
    return dataclasses.replace(config, repeats=2, seconds=0.01)


@exit_with_message("experiments.benchmark")
def main(arguments=None):
    """Run the command line."""
    with start_or_resume(BenchmarkConfig, "benchmark", __doc__, arguments, smoke_config) as (config, folder):
        results = measure(config)
        benchmark_report.write_report(pathlib.Path(folder), results)
        print(benchmark_report.final_message(folder, results))


if __name__ == "__main__":
    main()

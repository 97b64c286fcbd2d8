"""Run the workers of a case in turn: a slow phase of the machine slows all of them, so speedups are taken by round."""

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Annotated, Literal

import tyro

from experiments.benchmark.cases import CASES, SMOKE_CASES, Case, Kind
from keras_seq.commands.options import check_options

MATRIX_SIZES = {"cpu": 2048, "gpu": 8192}  # rows and columns of the matrices whose product gives the matmul peak
SMOKE_MATRIX_SIZES = {"cpu": 64, "gpu": 64}
MEMORY_FRACTION = "0.3"  # of a GPU, for each of two JAX workers; PyTorch's worker uses the rest
ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig:
    """Measure how fast keras_seq is."""

    backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    """Keras's backend, for keras_seq and keras.layers. PyTorch without Keras is measured too where it is installed."""
    cpu: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave a GPU alone."""
    kinds: tuple[Kind, ...] = ("step",)
    """What to measure. step: training steps on one batch. as_run: those of experiments.compare, on a text. nanogpt:
    nanoGPT's character run, whole, in bfloat16. generation: sampling texts. exports: one text, from files. pipeline:
    drawing batches. sizes: how time and memory of a step grow with each size."""
    against: str | None = None
    """A checkout of another version of keras_seq (git worktree add DIR COMMIT) to measure in turns with this one."""
    cases: tuple[int, ...] = ()
    """Numbers of the cases to measure, from 1, in the order of kinds. By default all."""
    repeats: int = 5
    """Number of timed runs of each case and implementation."""
    seconds: float = 2.0
    """Approximate duration of a timed run, in seconds; at least one step."""
    minutes: float = 10.0
    """Minutes after which nanogpt stops at its next validation, though it has steps left."""
    log_dir: str = "logs"
    """Folder of the report: LOG_DIR/benchmark/UTC-TIME/."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use one tiny case of each kind, to check that everything works."""

    def __post_init__(self):
        check_options(self, repeats=1, seconds=0, minutes=0)
        if not self.kinds:
            raise ValueError(f"--kinds: expected one or more of {', '.join(CASES)}.")
        if self.against is not None and not (pathlib.Path(self.against) / "experiments/benchmark").is_dir():
            raise ValueError(f"--against {self.against}: expected a checkout of keras_seq.")
        for number in self.cases:
            if not 1 <= number <= len(self.all_cases):
                raise ValueError(f"--cases {number}: expected numbers from 1 to {len(self.all_cases)}.")

    @property
    def all_cases(self) -> list[Case]:
        """Cases of which --cases are the numbers; with --smoke those of all kinds."""
        return [*SMOKE_CASES] if self.smoke else [case for kind in self.kinds for case in CASES[kind]]

    @property
    def selected_cases(self) -> list[Case]:
        """Cases to measure."""
        return [self.all_cases[number - 1] for number in self.cases] or self.all_cases


class WorkerError(Exception):
    """A process ended early; the message is the last line that it printed."""


class Worker:
    """Process of `experiments.benchmark.worker`; it imports what it needs while others start."""

    def __init__(self, config: BenchmarkConfig, request: dict):
        implementation = request.get("implementation", "")
        checkout = ROOT
        if implementation == "before":
            checkout, request = pathlib.Path(config.against).resolve(), {**request, "implementation": "keras_seq"}
        environment = {
            **os.environ,
            "KERAS_BACKEND": "torch" if implementation == "torch" else config.backend,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")])),
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": MEMORY_FRACTION,
            **({"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"} if config.cpu else {}),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.benchmark.worker", json.dumps(request)],
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def go(self) -> dict:
        """Have the worker do what is next, and return its answer."""
        with contextlib.suppress(OSError):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        last = "no message"
        for line in map(str.strip, self.process.stdout):
            if line.startswith("{"):  # other lines are warnings
                return json.loads(line)
            last = line or last
        raise WorkerError(f"{last} (exit status {self.process.wait()})")

    def close(self):
        """End the process."""
        self.process.kill()
        self.process.communicate()


def describe_device(config: BenchmarkConfig) -> dict:
    """Return the backend's device and its matmul peak, and versions."""
    request = {"matrix_sizes": SMOKE_MATRIX_SIZES if config.smoke else MATRIX_SIZES}
    with contextlib.closing(Worker(config, request)) as worker:
        try:
            return worker.go()
        except WorkerError as error:
            expected = "expected an installed backend that finds its device"
            raise ValueError(f"--backend {config.backend}: {expected}; it ended with {error}.") from None


def take_turns(config: BenchmarkConfig, case: Case, implementations, platform: str) -> tuple[dict, dict]:
    """Time a case; return the measurements of the implementations that succeed, and the errors of the others."""
    request = {"platform": platform, "seconds": config.seconds, "case": dataclasses.asdict(case)}
    answers, errors = {name: [] for name in implementations}, {}
    with contextlib.ExitStack() as exit_stack:
        workers = {}
        for name in implementations:
            workers[name] = Worker(config, {"implementation": name, **request})
            exit_stack.callback(workers[name].close)
        rounds = case.steps // case.steps_per_validation - 1 if case.steps else config.repeats
        end_time = time.monotonic() + 60 * config.minutes
        for n in range(2 + rounds):  # the imports, the warm-up, the rounds
            if case.steps and n > 2 and time.monotonic() > end_time:
                break
            for name in [*answers]:
                try:
                    answers[name].append(workers[name].go())
                except WorkerError as error:
                    errors[name] = str(error)
                    del answers[name]
    return {name: summarize(info, rounds) for name, (_, info, *rounds) in answers.items()}, errors


def summarize(info: dict, rounds: list[dict]) -> dict:
    """Return the median speed, all speeds, the peak memory, the lowest loss, and what the worker said of itself."""
    speeds = [answer["tokens_per_second"] for answer in rounds]
    peak = max(answer["peak_megabytes"] or 0.0 for answer in rounds) or None
    losses = [answer["val_loss"] for answer in (info, *rounds) if "val_loss" in answer]
    info = info | ({"val_losses": losses, "val_loss": min(losses)} if losses else {})
    return {"tokens_per_second": statistics.median(speeds), "repeats": speeds, "peak_megabytes": peak, **info}


def speedup(measurements: dict, implementation: str) -> float | None:
    """Return the speed of keras_seq relative to an implementation: the median of the ratios of all rounds."""
    speeds, others = (measurements.get(name, {}).get("repeats") for name in ("keras_seq", implementation))
    if not speeds or not others:
        return None
    return statistics.median(speed / other for speed, other in zip(speeds, others, strict=True))

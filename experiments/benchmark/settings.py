"""Options of `experiments.benchmark`."""

import dataclasses
import os
import pathlib
from typing import Annotated, Literal

import tyro

from experiments.benchmark.case import CASES, SMOKE_CASES, Case, Kind
from experiments.common.options import check_options

COMPARE_KINDS = ("as_run", "time_to_loss")  # which run `experiments.compare`
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
    """What to measure. step: training steps on one batch. as_run: experiments.compare, and PyTorch doing the same.
    time_to_loss: its seconds to a validation loss, and what they are spent on. nanogpt: nanoGPT's character run, whole,
    in bfloat16. generation: sampling texts. pipeline: drawing batches. sizes: how time and memory of a step grow with
    each size."""
    against: str | None = None
    """With as_run and time_to_loss, a checkout of another version of keras_seq (git worktree add DIR COMMIT) to measure
    in turns."""
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
        if self.against is not None and not (pathlib.Path(self.against) / "keras_seq").is_dir():
            raise ValueError(f"--against {self.against}: expected a checkout of keras_seq.")
        if self.against is not None and not {*COMPARE_KINDS} & {*self.kinds}:
            raise ValueError(f"--against {self.against}: expected --kinds {' or '.join(COMPARE_KINDS)} with it.")
        num_cases = sum(len(CASES[kind]) for kind in self.kinds)
        for number in self.cases:
            if not 1 <= number <= num_cases:
                raise ValueError(f"--cases {number}: expected numbers from 1 to {num_cases}.")

    def checkout(self, implementation: str) -> pathlib.Path:
        """Return the checkout that an implementation of `experiments.compare` runs in."""
        return pathlib.Path(self.against).resolve() if implementation == "before" else ROOT

    def environment(self, backend: str) -> dict[str, str]:
        """Return the environment variables of a process that uses this Keras backend."""
        variables = {**os.environ, "KERAS_BACKEND": backend, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        variables |= {"XLA_PYTHON_CLIENT_MEM_FRACTION": MEMORY_FRACTION}
        return variables | ({"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"} if self.cpu else {})

    @property
    def selected_cases(self) -> list[Case]:
        """Cases to measure."""
        cases = [*SMOKE_CASES] if self.smoke else [case for kind in self.kinds for case in CASES[kind]]
        return [cases[number - 1] for number in self.cases] or cases

"""How fast are the cases of `experiments.benchmark` on a GPU with JAX, and how well does nanoGPT's small model train?

    python -m experiments.benchmark.gpu                # the cases: keras_seq, keras.layers, PyTorch, interleaved
    python -m experiments.benchmark.gpu --train        # 10.65 M parameters, 5,000 steps on tiny Shakespeare
    python -m experiments.benchmark.gpu --train --resume logs/benchmark_gpu/TIME
    python -m experiments.benchmark.gpu --smoke        # both parts at tiny sizes on any device: a minute on 2 cores

Needs `pip install "jax[cuda12]" keras tyro`, PyTorch with CUDA for its column, and for --train the folder
KERAS_SEQ_DATA with shakespeare.txt. A machine with a GPU and JAX may have no TensorFlow, so these modules do not import
it: neither `keras_seq.training` nor `keras_seq.data` nor `experiments.frame.runs`. No expected result is known: it has not
yet been measured on a GPU.
"""

import contextlib
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
from typing import Annotated, Literal

import numpy as np
import tyro

from experiments.benchmark import gpu_report, gpu_text, gpu_workers
from experiments.benchmark import workers as benchmark_workers
from experiments.benchmark.cases import CASES, SMOKE_CASES, Case
from experiments.frame.folders import timestamped_folder
from experiments.frame.option_checks import check_options
from experiments.frame.shell import python
from experiments.frame.startup import command_line

SMOKE_CHARACTERS = 20_000
SMOKE_SIZES = {
    **{"num_layers": 1, "num_heads": 2, "embedding_dim": 16, "context_length": 16, "batch_size": 4},
    **{"warmup_steps": 5, "validate_every": 10, "random_window_batches": 5},
}


@dataclasses.dataclass(frozen=True)
class GPUBenchmarkConfig:
    """Measure training steps on a GPU, or train on it."""

    cases: tuple[int, ...] = ()
    """Numbers of the cases to measure, from 1. By default all."""
    repeats: int = 5
    """Number of timed runs of each case and implementation."""
    seconds: float = 2.0
    """Approximate duration of a timed run, in seconds; at least one step."""
    train: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train nanoGPT's Transformer instead of measuring the cases."""
    steps: int = 5000
    """Number of training steps."""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of activations and matmuls in the training; weights and loss are always float32."""
    corpus: str = "shakespeare"
    """Training corpus: shakespeare, pydoc or the path of a text file."""
    seed: int = 0
    """Random seed of the initial weights, the batches and the dropout."""
    cpu: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Run on the CPU even where there is a GPU; the sizes are made for a GPU, so this takes long."""
    log_dir: str = "logs"
    """Folder of the report: LOG_DIR/benchmark_gpu/UTC-TIME/."""
    resume: str | None = None
    """Run folder of a training to resume. Its options are read from its config.json; the others are ignored."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Run both parts at tiny sizes on any device, to check that everything works."""

    def __post_init__(self):
        check_options(self, repeats=1, seconds=0, steps=1)
        for number in self.cases:
            if not 1 <= number <= len(CASES):
                raise ValueError(f"--cases {number}: expected numbers from 1 to {len(CASES)}.")
        if self.train and self.cases:
            raise ValueError(f"--cases {' '.join(map(str, self.cases))} with --train: expected one of the two.")
        if self.resume is not None and not self.train:
            raise ValueError(f"--resume {self.resume}: only a training can be resumed; add --train.")

    @property
    def selected_cases(self) -> tuple[Case, ...]:
        """Return the cases to measure."""
        if self.smoke:
            return SMOKE_CASES
        return () if self.train else tuple(CASES[number - 1] for number in self.cases) or CASES


@contextlib.contextmanager
def exit_with_message():
    """Turn user errors into a one-line message, like `experiments.startup.exit_with_message`, without TensorFlow."""
    try:
        yield
    except (ValueError, OSError) as error:
        print(f"experiments.benchmark.gpu: {' '.join(str(error).split()).rstrip('.')}.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        sys.exit(130)


def find_device(config: GPUBenchmarkConfig) -> dict:
    """Return the device that JAX runs on, as `gpu_workers.device` describes it.

    Raises:
        ValueError: JAX is not installed, or there is no GPU and the config does not allow a CPU.
    """
    if importlib.util.find_spec("jax") is None:
        raise ValueError('JAX is not installed; expected `pip install "jax[cuda12]" keras tyro`.')
    device = gpu_workers.device(config.cpu, small=config.smoke)
    if device["platform"] != "gpu" and not (config.smoke or config.cpu):
        raise ValueError(
            f"JAX finds no GPU, only {device['kind']}: run it on a machine with a GPU, check that it works with "
            "--smoke, or use --cpu, which takes long."
        )
    return device


def available_implementations(device) -> list[str]:
    """Return the implementations that can be measured on the device."""
    implementations = ["keras_seq", "keras"]
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed and is not measured.")
        return implementations
    if device["platform"] == "gpu":
        check = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
        if subprocess.run(check).returncode:
            print("This PyTorch finds no GPU and is not measured.")
            return implementations
    return [*implementations, "torch"]


def measure_case(case: Case, implementations, config: GPUBenchmarkConfig, device) -> dict:
    """Measure one case.

    Args:
        case: The case to run.
        implementations: Names among `"keras_seq"`, `"keras"` and `"torch"`.
        config: Options of the command line.
        device: What `find_device` returns.

    Returns:
        The case's entry in result.json.
    """
    cpu = device["platform"] != "gpu"
    summaries = gpu_workers.run_interleaved(case, implementations, config.repeats, config.seconds, cpu)
    measurements = {name: summary for name, summary in summaries.items() if "error" not in summary}
    measurement = measurements.get("keras_seq")
    speedups = {
        name: benchmark_workers.speedup(measurements, name) if measurement else None for name in ("torch", "keras")
    }
    flops = measurement["flops_per_token"] * measurement["tokens_per_second"] if measurement else None
    return {
        "name": case.name,
        "case": dataclasses.asdict(case),
        "measurements": measurements,
        "errors": {name: summary["error"] for name, summary in summaries.items() if "error" in summary},
        "speedup_vs_torch": speedups["torch"],
        "speedup_vs_keras": speedups["keras"],
        "matmul_utilization": flops / device["matmul_flops"][case.precision] if measurement else None,
    }


def prepare_training(config: GPUBenchmarkConfig, folder: pathlib.Path):
    """Write the inputs of the training: config.json and data.npz with the ids.

    Args:
        config: Options of the command line.
        folder: Run folder.
    """
    text = gpu_text.read_text(config.corpus)
    text = text[:SMOKE_CHARACTERS] if config.smoke else text
    sizes = SMOKE_SIZES if config.smoke else {}
    data = gpu_text.encode_splits(text, sizes.get("context_length", 256))
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "data.npz", **data)
    values = {"schema": gpu_report.SCHEMA, "config": dataclasses.asdict(config), "sizes": sizes}
    gpu_report.write_json(folder / "config.json", values)


def check_run(folder: pathlib.Path):
    """Check that a run folder holds a training that can be resumed.

    Raises:
        ValueError: There is no config.json, or another version wrote it.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"--resume {folder}: expected the folder of a training, with a config.json.")
    if json.loads(path.read_text(encoding="utf-8")).get("schema") != gpu_report.SCHEMA:
        raise ValueError(
            f"--resume {folder}: it was written by keras_seq 0.1; this version reads schema {gpu_report.SCHEMA}: "
            "run it again in a new folder, or use keras_seq 0.1."
        )


def run_training(folder: pathlib.Path, cpu: bool) -> dict:
    """Train in a separate process.

    Args:
        folder: Run folder, prepared by `prepare_training`.
        cpu: Whether to run on the CPU even where there is a GPU.

    Returns:
        The contents of training.json.

    Raises:
        ValueError: The training failed.
    """
    command = [sys.executable, "-m", "experiments.benchmark.gpu_train", str(folder.resolve())]
    resume = python("-m", "experiments.benchmark.gpu", "--train", "--resume", folder)
    try:
        process = subprocess.run(
            command, cwd=benchmark_workers.EXPERIMENTS_FOLDER.parent, env=gpu_workers.environment(cpu)
        )
    except KeyboardInterrupt:
        print(f"\nTo resume from the last validation: {resume}", file=sys.stderr)
        raise
    if process.returncode:
        raise ValueError(
            f"The training ended with exit status {process.returncode}; to resume from the last validation: {resume}"
        )
    return json.loads((folder / "training.json").read_text(encoding="utf-8"))


def main(arguments=None):
    """Run the command line."""
    with exit_with_message():
        config = command_line(GPUBenchmarkConfig, "experiments.benchmark.gpu", __doc__, arguments)
        if config.smoke:
            config = dataclasses.replace(config, repeats=2, seconds=0.01, steps=20, corpus="pydoc")
        if config.resume:
            check_run(pathlib.Path(config.resume))
        device = find_device(config)
        print(f"{device['kind']} ({device['platform']})", flush=True)
        if config.resume:
            failed = measure(config, pathlib.Path(config.resume), device)
        else:
            with timestamped_folder(pathlib.Path(config.log_dir) / "benchmark_gpu") as folder:
                failed = measure(config, folder, device)
        if failed:
            sys.exit(1)


def measure(config: GPUBenchmarkConfig, folder: pathlib.Path, device) -> bool:
    """Measure and train as configured, and write the report.

    Args:
        config: Options of the command line.
        folder: Run folder.
        device: What `find_device` returns.

    Returns:
        Whether an implementation failed at a case.
    """
    if not config.resume and (config.train or config.smoke):
        prepare_training(config, folder)
    results = {"schema": gpu_report.SCHEMA, "device": device, "cases": [], "training": None}
    implementations = available_implementations(device) if config.selected_cases else []
    for case in config.selected_cases:
        results["cases"].append(measure_case(case, implementations, config, device))
        gpu_report.write_report(folder, results)
        print(gpu_report.line(results["cases"][-1]), flush=True)
    if config.train or config.smoke:
        results["training"] = run_training(folder, config.cpu)
    gpu_report.write_report(folder, results)
    print(f"\n{gpu_report.report_text(results)}\n\nReport: {folder / 'benchmark_gpu.md'}")
    return any(result["errors"] for result in results["cases"])


if __name__ == "__main__":
    main()

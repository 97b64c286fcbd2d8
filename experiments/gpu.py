"""The rows of `experiments.benchmark` and nanoGPT's small Transformer on a GPU, with JAX.

    python -m experiments.gpu                          # the rows: ours, keras.layers as it comes, PyTorch, in turns
    python -m experiments.gpu --train                  # 10.65 M parameters, 5,000 steps on tiny Shakespeare
    python -m experiments.gpu --train --resume logs/gpu/TIME
    python -m experiments.gpu --smoke                  # both, tiny, on any device: a minute on 2 cores

It needs `pip install "jax[cuda12]" keras tyro`, PyTorch with CUDA for its column, and for --train the folder
KERAS_SEQ_DATA with shakespeare.txt. A machine with a GPU and JAX may have no TensorFlow, so nothing here imports it:
neither `keras_seq.training` and `.text` nor `experiments.runs`. No figure of a GPU has been measured with it yet.
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

from experiments import benchmark_turns, gpu_report, gpu_text, gpu_turns
from experiments.benchmark_rows import ROWS, TINY, Row
from experiments.folders import begun_folder
from experiments.options import check_options
from experiments.shell import python
from experiments.startup import command_line

SMOKE_CHARACTERS = 20_000
SMOKE_SIZES = {
    **{"num_layers": 1, "num_heads": 2, "embedding_dim": 16, "context": 16, "batch_size": 4},
    **{"warmup_steps": 5, "evaluate_every": 10, "crop_batches": 5},
}


@dataclasses.dataclass(frozen=True)
class GPU:
    """Measure training steps on a GPU, or train on it."""

    rows: tuple[int, ...] = ()
    """Numbers of the rows to measure, from 1; all where none is given."""
    runs: int = 5
    """Counted runs of each row and way."""
    seconds: float = 2.0
    """How long a counted run takes about; at least one step."""
    train: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train nanoGPT's Transformer, instead of measuring the rows."""
    steps: int = 5000
    """Of the training."""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the training's activations and matmuls; weights and loss are float32 always."""
    corpus: str = "shakespeare"
    """To train on: shakespeare, pydoc or the path of a text file."""
    seed: int = 0
    """Of the first weights, the batches and the dropout."""
    cpu: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """On the processor, and leave a GPU alone: the sizes are made for a GPU, so it takes long."""
    log_dir: str = "logs"
    """The report goes to LOG_DIR/gpu/UTC-TIME/."""
    resume: str | None = None
    """The folder of a training to go on with, as it was begun: the other options do not count."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Both parts at tiny sizes, on any device: shows that everything works, and nothing else."""

    def __post_init__(self):
        check_options(self, runs=1, seconds=0, steps=1)
        for row in self.rows:
            if not 1 <= row <= len(ROWS):
                raise ValueError(f"--rows {row}: expected numbers from 1 to {len(ROWS)}.")
        if self.train and self.rows:
            raise ValueError(f"--rows {' '.join(map(str, self.rows))} with --train: expected one of the two.")
        if self.resume is not None and not self.train:
            raise ValueError(f"--resume {self.resume}: only a training can be gone on with; add --train.")

    @property
    def chosen(self) -> tuple[Row, ...]:
        """The rows to measure."""
        if self.smoke:
            return TINY
        return () if self.train else tuple(ROWS[number - 1] for number in self.rows) or ROWS


@contextlib.contextmanager
def one_sentence():
    """As `experiments.startup.one_sentence`, which needs TensorFlow."""
    try:
        yield
    except (ValueError, OSError) as error:
        print(f"experiments.gpu: {' '.join(str(error).split()).rstrip('.')}.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        sys.exit(130)


def found_device(settings: GPU) -> dict:
    """What JAX runs on.

    Raises:
        ValueError: there is no JAX, or no GPU and no leave to do without.
    """
    if importlib.util.find_spec("jax") is None:
        raise ValueError('JAX is not installed; expected `pip install "jax[cuda12]" keras tyro`.')
    device = gpu_turns.device(settings.cpu, small=settings.smoke)
    if device["platform"] != "gpu" and not (settings.smoke or settings.cpu):
        raise ValueError(
            f"JAX finds no GPU here, only {device['kind']}: run it where there is one, "
            "or see that it works with --smoke, or wait for long with --cpu."
        )
    return device


def ways_of(device) -> list[str]:
    """Who takes turns on it."""
    ways = ["ours", "keras"]
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed, so it is not measured.")
        return ways
    if device["platform"] == "gpu":
        check = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
        if subprocess.run(check).returncode:
            print("This PyTorch finds no GPU, so it is not measured.")
            return ways
    return [*ways, "torch"]


def measured_row(row: Row, ways, settings: GPU, device) -> dict:
    """What result.json says of a row."""
    cpu = device["platform"] != "gpu"
    told = gpu_turns.in_turns(row, ways, settings.runs, settings.seconds, cpu)
    summaries = {way: about for way, about in told.items() if "error" not in about}
    ours = summaries.get("ours")
    ratios = {way: benchmark_turns.ratio(summaries, way) if ours else None for way in ("torch", "keras")}
    flops = ours["flops_per_token"] * ours["tokens_per_second"] if ours else None
    return {
        "name": row.name,
        "row": dataclasses.asdict(row),
        "measured": summaries,
        "errors": {way: about["error"] for way, about in told.items() if "error" in about},
        "speedup_vs_torch": ratios["torch"],
        "speedup_vs_keras": ratios["keras"],
        "matmul_utilization": flops / device["matmul_flops"][row.precision] if ours else None,
    }


def prepared(settings: GPU, folder: pathlib.Path):
    """Writes what the training reads: config.json and the ids."""
    text = gpu_text.read(settings.corpus)
    text = text[:SMOKE_CHARACTERS] if settings.smoke else text
    sizes = SMOKE_SIZES if settings.smoke else {}
    data = gpu_text.encoded(text, sizes.get("context", 256))
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "data.npz", **data)
    gpu_report.write_json(folder / "config.json", {"settings": dataclasses.asdict(settings), "sizes": sizes})


def trained(folder: pathlib.Path, cpu: bool) -> dict:
    """Trains in a process of its own, and returns what came of it."""
    command = [sys.executable, "-m", "experiments.gpu_train", str(folder.resolve())]
    again = python("-m", "experiments.gpu", "--train", "--resume", folder)
    try:
        code = subprocess.run(command, cwd=benchmark_turns.HERE.parent, env=gpu_turns.environment(cpu)).returncode
    except KeyboardInterrupt:
        print(f"\nTo go on from the last evaluation: {again}", file=sys.stderr)
        raise
    if code:
        raise ValueError(f"The training ended with status {code}; to go on from the last evaluation: {again}")
    return json.loads((folder / "training.json").read_text(encoding="utf-8"))


def main(arguments=None):
    """The command line."""
    with one_sentence():
        settings = command_line(GPU, "experiments.gpu", __doc__, arguments)
        if settings.smoke:
            settings = dataclasses.replace(settings, runs=2, seconds=0.01, steps=20, corpus="pydoc")
        if settings.resume and not (pathlib.Path(settings.resume) / "config.json").is_file():
            raise ValueError(f"--resume {settings.resume}: no training with a config.json is there.")
        device = found_device(settings)
        print(f"{device['kind']} ({device['platform']})", flush=True)
        if settings.resume:
            failed = measure(settings, pathlib.Path(settings.resume), device)
        else:
            with begun_folder(pathlib.Path(settings.log_dir) / "gpu") as folder:
                failed = measure(settings, folder, device)
        if failed:
            sys.exit(1)


def measure(settings: GPU, folder: pathlib.Path, device) -> bool:
    """Measures and trains what the settings say, and writes the report; whether somebody failed at a row."""
    if not settings.resume and (settings.train or settings.smoke):
        prepared(settings, folder)
    found = {"device": device, "rows": [], "training": None}
    ways = ways_of(device) if settings.chosen else []
    for row in settings.chosen:
        found["rows"].append(measured_row(row, ways, settings, device))
        gpu_report.write(folder, found)
        print(gpu_report.line(found["rows"][-1]), flush=True)
    if settings.train or settings.smoke:
        found["training"] = trained(folder, settings.cpu)
    gpu_report.write(folder, found)
    print(f"\n{gpu_report.told(found)}\n\nReport: {folder / 'gpu.md'}")
    return any(entry["errors"] for entry in found["rows"])


if __name__ == "__main__":
    main()

"""Options and cases of `experiments.benchmark`: a case is the same work for each implementation that it names."""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments.frame.option_checks import check_options

IMPLEMENTATIONS = {"keras_seq": "keras_seq", "keras": "keras.layers", "uncached": "without a cache", "torch": "PyTorch"}
BACKEND_KINDS = ("step", "sizes")  # the other kinds need keras_seq.training, .generation or .data, and so TensorFlow
Kind = Literal["step", "end_to_end", "generation", "pipeline", "sizes"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One benchmark case.

    step        forward, backward, clipping to norm 1 and AdamW on one batch; of attention alone, forward and backward
    end_to_end  training as it is run: batches drawn from a text, optimizer, logs and checkpoint
    generation  sample texts of T tokens
    pipeline    draw batches, or encode and decode a text
    sizes       steps of keras_seq alone, to see how time and memory grow with one size
    """

    kind: Kind
    model: str
    """"lstm", "transformer" or "attention"; the name of an input pipeline."""
    batch_size: int
    sequence_length: int
    """T, in tokens."""
    embedding_dim: int = 0
    """D; of attention alone, H times K."""
    precision: Literal["float32", "bfloat16"] = "float32"
    units: int = 0
    """Units of the LSTM."""
    num_layers: int = 1
    num_heads: int = 1
    """Attention heads H."""
    vocabulary_size: int = 65
    optimizer: Literal["adamw", "muon"] = "adamw"
    torch_target: float | None = None
    """Target of the speedup over PyTorch."""
    keras_target: float | None = None
    """Target of the speedup over keras.layers."""

    @property
    def name(self) -> str:
        """Name in reports: the model and its sizes."""
        vocabulary = "" if self.vocabulary_size == 65 else f", V {self.vocabulary_size}"
        layers = "" if self.num_layers == 1 else f"{self.num_layers} x "
        model = {
            "lstm": f"LSTM {layers}{self.units}, D {self.embedding_dim}",
            "transformer": f"Transformer {self.num_layers} x {self.embedding_dim}, H {self.num_heads}",
            "attention": f"attention, H {self.num_heads}, K {self.embedding_dim // self.num_heads}",
        }.get(self.model, self.model)
        last = {"end_to_end": f", {self.optimizer}", "pipeline": ""}.get(self.kind, f", {self.precision}")
        return f"{model}{vocabulary}, B {self.batch_size}, T {self.sequence_length}{last}"

    @property
    def implementations(self) -> tuple[str, ...]:
        """Keys of IMPLEMENTATIONS that do this work."""
        if self.kind == "generation":  # nanoGPT's generate is PyTorch's
            return ("keras_seq", "uncached", "torch") if self.model == "transformer" else ("keras_seq", "uncached")
        return ("keras_seq", "keras", "torch") if self.kind in ("step", "end_to_end") else ("keras_seq",)

    @property
    def prefix_lengths(self) -> list[int]:
        """Lengths at the middle of 8 equal parts of a text: their mean time is that of a token without a cache."""
        return [max(1, round((n + 0.5) * self.sequence_length / 8)) for n in range(8)]


LSTM = dict(model="lstm", batch_size=50, sequence_length=200, embedding_dim=128, units=256)
SMALL_LSTM = dict(model="lstm", batch_size=12, sequence_length=64, embedding_dim=64, units=384)
GPT = dict(model="transformer", batch_size=64, sequence_length=256, embedding_dim=384, num_layers=6, num_heads=6)
SMALL_GPT = dict(model="transformer", batch_size=12, sequence_length=64, embedding_dim=128, num_layers=4, num_heads=4)
TINY = dict(model="transformer", batch_size=2, sequence_length=8, embedding_dim=8, num_heads=2)
ATTENTION = dict(model="attention", batch_size=1, sequence_length=4096, embedding_dim=384, num_heads=6)
SPEEDUPS = (  # targets over PyTorch and over keras.layers
    (LSTM | {"units": 1024}, "float32", 0.95, 1.5),
    (LSTM | {"units": 1024}, "bfloat16", 0.9, 3.0),
    (LSTM, "float32", 0.9, 1.2),
    (LSTM, "bfloat16", 0.9, 2.0),
    (SMALL_LSTM, "float32", 0.7, 1.5),
    (SMALL_LSTM, "bfloat16", 0.6, 1.8),
    (SMALL_GPT, "float32", 1.0, 1.3),
    (GPT, "float32", 0.9, 1.3),
    (GPT, "bfloat16", 0.8, 1.8),
    (ATTENTION, "float32", 0.7, 2.0),
)
PIPELINES = (
    *("CharacterTokenizer.encode", "CharacterTokenizer.decode", "RandomWindows", "SequentialWindows"),
    *("StatefulWindows", "StatefulWindows with reset mask", "PythonGeneratorWindows"),
)


def _sizes() -> list[Case]:
    """Return cases in which one size grows and the others stay."""
    cases = [Case("sizes", **ATTENTION | {"sequence_length": n}) for n in (64, 256, 1024, 2048, 4096)]
    for base, width in ((SMALL_LSTM | {"units": 256}, "units"), (SMALL_GPT | {"num_layers": 2}, "embedding_dim")):
        growing = {"sequence_length": (64, 256, 1024), "batch_size": (1, 4, 16, 64), width: (64, 128, 256, 512)}
        growing |= {"vocabulary_size": (65, 1000, 8000), "num_layers": (1, 2, 4)}
        base = base | {"batch_size": 16, "sequence_length": 128}
        cases += [Case("sizes", **base | {name: n}) for name, values in growing.items() for n in values]
    return [*dict.fromkeys(cases)]


CASES = {
    "step": [Case("step", precision=p, torch_target=t, keras_target=k, **sizes) for sizes, p, t, k in SPEEDUPS],
    "end_to_end": [
        Case("end_to_end", optimizer=optimizer, **sizes)
        for sizes in (SMALL_LSTM | {"units": 408}, SMALL_GPT)
        for optimizer in ("adamw", "muon")
    ],
    "generation": [
        Case("generation", **sizes | {"batch_size": batch_size, "sequence_length": 1024})
        for sizes in (SMALL_GPT, SMALL_LSTM | {"units": 512})
        for batch_size in (1, 32)
    ],
    "pipeline": [Case("pipeline", name, 50, 200) for name in PIPELINES],
    "sizes": _sizes(),
}
SMOKE_CASES = (
    Case("step", precision="bfloat16", **TINY),
    Case("end_to_end", optimizer="muon", **TINY | {"model": "lstm", "units": 8}),
    Case("generation", **TINY),
    Case("pipeline", "RandomWindows", 2, 8),
    Case("sizes", **TINY | {"model": "attention"}),
)


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig:
    """Measure how fast keras_seq is."""

    backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    """Keras's backend, for keras_seq and keras.layers. PyTorch without Keras is measured too where it is installed."""
    cpu: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave a GPU alone."""
    kinds: tuple[Kind, ...] = ("step",)
    """What to measure. step: training steps on one batch. end_to_end: training with its batches, logs and checkpoint.
    generation: sampling texts. pipeline: drawing batches. sizes: how time and memory of a step grow with each size.
    All but step and sizes need TensorFlow."""
    cases: tuple[int, ...] = ()
    """Numbers of the cases to measure, from 1, in the order of kinds. By default all."""
    repeats: int = 5
    """Number of timed runs of each case and implementation."""
    seconds: float = 2.0
    """Approximate duration of a timed run, in seconds; at least one step."""
    log_dir: str = "logs"
    """Folder of the report: LOG_DIR/benchmark/UTC-TIME/."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use one tiny case of each kind, to check that everything works."""

    def __post_init__(self):
        check_options(self, repeats=1, seconds=0)
        if not self.kinds:
            raise ValueError(f"--kinds: expected one or more of {', '.join(CASES)}.")
        for kind in self.kinds:
            if self.backend != "tensorflow" and kind not in BACKEND_KINDS:
                expected = f"{' or '.join(BACKEND_KINDS)}, or --backend tensorflow, which {kind} needs"
                raise ValueError(f"--kinds {kind} with --backend {self.backend}: expected {expected}.")
        num_cases = sum(len(CASES[kind]) for kind in self.kinds)
        for number in self.cases:
            if not 1 <= number <= num_cases:
                raise ValueError(f"--cases {number}: expected numbers from 1 to {num_cases}.")

    @property
    def selected_cases(self) -> list[Case]:
        """Cases to measure."""
        if self.smoke:
            return [case for case in SMOKE_CASES if self.backend == "tensorflow" or case.kind in BACKEND_KINDS]
        cases = [case for kind in self.kinds for case in CASES[kind]]
        return [cases[number - 1] for number in self.cases] or cases

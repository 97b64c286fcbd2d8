"""Cases of `experiments.benchmark`: a case is the same work for each implementation that it names."""

import dataclasses
from typing import Literal

IMPLEMENTATIONS = {
    **{"keras_seq": "keras_seq", "before": "--against", "keras": "keras.layers"},
    **{"uncached": "without a cache", "onnx": "onnxruntime", "onnx_int8": "onnxruntime, int8"},
    **{"litert": "LiteRT", "litert_int8": "LiteRT, int8", "torch": "PyTorch"},
}
RUNTIMES = ("onnx", "onnx_int8", "litert", "litert_int8")
Kind = Literal["step", "as_run", "nanogpt", "generation", "exports", "pipeline", "sizes"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One benchmark case.

    step          forward, backward, clipping to norm 1 and AdamW on one batch; of attention alone, forward and backward
    as_run        the steps of `experiments.compare`: batches drawn from a text, its optimizer
    nanogpt       nanoGPT's character run from its first step to its last, validated on the way
    generation    sample texts of T tokens
    exports       sample a text of T tokens, also from an exported file
    pipeline      draw batches, or encode and decode a text
    sizes         steps of keras_seq alone, to see how time and memory grow with one size
    """

    kind: Kind
    model: str
    """"lstm", "transformer", "gpt2", "mamba2" or "attention"; the name of an input pipeline."""
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
    """muon: the default of `experiments.compare`, NorMuon; PyTorch's Muon."""
    targets: tuple[tuple[str, float], ...] = ()
    """Targets of the speedups over other implementations."""
    dropout: float = 0.0
    """Dropout rate, of gpt2."""
    steps: int = 0
    """Steps of nanogpt's training; 0 for cases that are not trained to an end."""
    corpus: str = "pydoc"
    """Text of as_run and nanogpt."""

    @property
    def name(self) -> str:
        """Name in reports: the model and its sizes."""
        vocabulary = "" if self.vocabulary_size == 65 else f", V {self.vocabulary_size}"
        layers = "" if self.num_layers == 1 else f"{self.num_layers} x "
        model = {
            "lstm": f"LSTM {layers}{self.units}, D {self.embedding_dim}",
            "transformer": f"Transformer {self.num_layers} x {self.embedding_dim}, H {self.num_heads}",
            "gpt2": f"nanoGPT {self.num_layers} x {self.embedding_dim}, H {self.num_heads}",
            "attention": f"attention, H {self.num_heads}, K {self.embedding_dim // self.num_heads}",
        }.get(self.model, self.model)
        optimizer = f", {self.optimizer}" if self.kind == "as_run" else ""
        precision = "" if self.kind == "pipeline" else f", {self.precision}"
        return f"{model}{vocabulary}, B {self.batch_size}, T {self.sequence_length}{optimizer}{precision}"

    @property
    def implementations(self) -> tuple[str, ...]:
        """Keys of IMPLEMENTATIONS that do this work."""
        others = {"step": ("keras", "torch"), "as_run": ("torch",), "nanogpt": ("torch",), "generation": ("uncached",)}
        others["exports"] = RUNTIMES
        in_torch = {("generation", "transformer"), ("exports", "transformer"), ("exports", "lstm")}
        torch = ("torch",) if (self.kind, self.model) in in_torch else ()  # of the Transformer, nanoGPT's generate
        return ("keras_seq", "before", *others.get(self.kind, ()), *torch)

    @property
    def steps_per_validation(self) -> int:
        """Steps between two validations of nanogpt: 250 of 5,000, as there."""
        return max(1, self.steps // 20)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a batch."""
        return self.batch_size * self.sequence_length

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
    *("StatefulWindows", "StatefulWindows with reset mask"),
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


def _as_run() -> list[Case]:
    """Return the models of `experiments.compare` at their defaults, with AdamW too, and nanoGPT on a CPU."""
    targets = {"lstm": (("torch", 1.0),), "transformer": (("torch", 1.2),)}
    mains = (SMALL_LSTM | {"units": 408}, SMALL_GPT)
    kinds = (("float32", "muon"), ("bfloat16", "muon"), ("float32", "adamw"))
    cases = [
        Case("as_run", **sizes, precision=precision, optimizer=optimizer, targets=targets[sizes["model"]])
        for precision, optimizer in kinds
        for sizes in mains
    ]
    return [*cases, Case("as_run", **SMALL_GPT | {"model": "gpt2"})]


NANOGPT = dict(precision="bfloat16", dropout=0.2, model="gpt2")
CASES = {
    "step": [Case("step", precision=p, targets=(("torch", t), ("keras", k)), **s) for s, p, t, k in SPEEDUPS],
    "as_run": _as_run(),
    "nanogpt": [Case("nanogpt", steps=5000, corpus="shakespeare", targets=(("torch", 1.0),), **GPT | NANOGPT)],
    "generation": [
        Case("generation", **sizes | {"batch_size": batch_size, "sequence_length": 1024})
        for sizes in (SMALL_GPT, SMALL_LSTM | {"units": 512})
        for batch_size in (1, 32)
    ],
    "exports": [
        Case("exports", **sizes | {"batch_size": 1, "sequence_length": 256})
        for sizes in (SMALL_LSTM | {"units": 512}, SMALL_GPT, {"model": "mamba2"})
    ],
    "pipeline": [Case("pipeline", name, 50, 200) for name in PIPELINES],
    "sizes": _sizes(),
}
SMOKE_CASES = (
    Case("step", precision="bfloat16", **TINY),
    Case("as_run", optimizer="muon", **TINY | {"model": "lstm", "units": 8}),
    Case("nanogpt", steps=3, **TINY | NANOGPT),
    Case("generation", **TINY),
    Case("exports", **TINY | {"model": "lstm", "units": 8, "batch_size": 1}),
    Case("pipeline", "RandomWindows", 2, 8),
    Case("sizes", **TINY | {"model": "attention"}),
)

"""Define the cases of `experiments.benchmark`: each is the same work for keras_seq, keras.layers and PyTorch."""

import dataclasses
from typing import Literal

IMPLEMENTATIONS = {"keras_seq": "keras_seq", "keras": "keras.layers", "torch": "PyTorch"}  # names in reports


@dataclasses.dataclass(frozen=True)
class Case:
    """One benchmark case: a training step of a model (forward, backward, clipping to norm 1, AdamW), or attention."""

    name: str
    kind: Literal["lstm", "transformer", "attention"]
    batch_size: int
    sequence_length: int
    """T, in tokens."""
    embedding_dim: int
    """D; of attention alone, H times K."""
    precision: Literal["float32", "bfloat16"] = "float32"
    units: int = 0
    """Units of the LSTM."""
    num_layers: int = 1
    num_heads: int = 1
    """Attention heads H of the Transformer and of attention alone."""
    vocabulary_size: int = 65
    torch_target: float | None = None
    """Target of the speedup over PyTorch."""
    keras_target: float | None = None
    """Target of the speedup over keras.layers."""


def _both_precisions(case: Case, torch_target, keras_target) -> tuple[Case, Case]:
    """Return the case in float32 and in bfloat16; the targets are those in bfloat16."""
    changes = {"precision": "bfloat16", "torch_target": torch_target, "keras_target": keras_target}
    return case, dataclasses.replace(case, name=case.name.replace("float32", "bfloat16"), **changes)


def _lstm(units, embedding_dim, batch_size, sequence_length, torch_target, keras_target):
    name = f"LSTM {units}, D {embedding_dim}, B {batch_size}, T {sequence_length}, float32"
    return Case(
        name,
        "lstm",
        batch_size,
        sequence_length,
        embedding_dim,
        units=units,
        torch_target=torch_target,
        keras_target=keras_target,
    )


def _transformer(num_layers, embedding_dim, num_heads, batch_size, sequence_length, torch_target, keras_target):
    sizes = {"num_layers": num_layers, "num_heads": num_heads}
    name = f"Transformer {num_layers} x {embedding_dim}, H {num_heads}, B {batch_size}, T {sequence_length}, float32"
    targets = {"torch_target": torch_target, "keras_target": keras_target}
    return Case(name, "transformer", batch_size, sequence_length, embedding_dim, **sizes, **targets)


CASES = (
    *_both_precisions(_lstm(1024, 128, 50, 200, 0.95, 1.5), 0.9, 3.0),
    *_both_precisions(_lstm(256, 128, 50, 200, 0.9, 1.2), 0.9, 2.0),
    *_both_precisions(_lstm(384, 64, 12, 64, 0.7, 1.5), 0.6, 1.8),
    _transformer(4, 128, 4, 12, 64, 1.0, 1.3),
    *_both_precisions(_transformer(6, 384, 6, 64, 256, 0.9, 1.3), 0.8, 1.8),
    Case("attention, T 4096, H 6, K 64", "attention", 1, 4096, 384, num_heads=6, torch_target=0.7, keras_target=2.0),
)

SMOKE_CASES = (  # two kinds are enough: each starts three processes
    Case("Transformer 1 x 8", "transformer", 2, 8, 8, num_heads=2, precision="bfloat16"),
    Case("attention, T 16", "attention", 1, 16, 8, num_heads=2),
)


def size_sweep() -> dict[str, tuple[Case, ...]]:
    """Return cases in which one size grows and the others stay, by `"MODEL, LETTER OF THE SIZE"`."""
    lstm = Case("LSTM 256", "lstm", 16, 128, 64, units=256)
    transformer = Case("Transformer 2 x 128", "transformer", 16, 128, 128, num_layers=2, num_heads=4)
    attention = Case("attention, H 6, K 64", "attention", 1, 64, 384, num_heads=6)
    sweeps = {
        "attention, T": tuple(dataclasses.replace(attention, sequence_length=n) for n in (64, 256, 1024, 2048, 4096))
    }
    for base in (lstm, transformer):
        width = "units" if base.kind == "lstm" else "embedding_dim"
        sizes = {
            "T": ("sequence_length", (64, 256, 1024)),
            "B": ("batch_size", (1, 4, 16, 64)),
            "D": (width, (64, 128, 256, 512)),
            "V": ("vocabulary_size", (65, 1000, 8000)),
            "layers": ("num_layers", (1, 2, 4)),
        }
        for letter, (field, values) in sizes.items():
            sweeps[f"{base.name}, {letter}"] = tuple(dataclasses.replace(base, **{field: n}) for n in values)
    return sweeps


def size(case: Case, sweep: str) -> int:
    """Return the size that a sweep changes.

    Args:
        case: A case of the sweep.
        sweep: Name of the sweep, a key of `size_sweep()`.
    """
    letter = sweep.rsplit(", ", 1)[1]
    width = case.units if case.kind == "lstm" else case.embedding_dim
    return {
        "T": case.sequence_length,
        "B": case.batch_size,
        "D": width,
        "V": case.vocabulary_size,
        "layers": case.num_layers,
    }[letter]

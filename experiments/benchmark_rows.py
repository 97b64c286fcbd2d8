"""What `experiments.benchmark` measures: each row is one work, done by ours, by Keras as it comes and by PyTorch."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Row:
    """One work. A model's is a training step: forward, backward, clipping to norm 1, AdamW."""

    name: str
    kind: Literal["lstm", "transformer", "attention"]
    batch_size: int
    length: int
    """T."""
    embedding_dim: int
    """D; of attention alone, H times K."""
    precision: Literal["float32", "bfloat16"] = "float32"
    units: int = 0
    """Of the LSTM."""
    num_layers: int = 1
    num_heads: int = 1
    """Of the Transformer and of attention alone."""
    vocabulary_size: int = 65
    torch_target: float | None = None
    """The ratio to PyTorch's speed that is asked for."""
    keras_target: float | None = None
    """The ratio to the speed of keras.layers that is asked for."""


def _both(row: Row, torch_target, keras_target) -> tuple[Row, Row]:
    """The row in float32 and in bfloat16."""
    half = {"precision": "bfloat16", "torch_target": torch_target, "keras_target": keras_target}
    return row, dataclasses.replace(row, name=row.name.replace("float32", "bfloat16"), **half)


def _lstm(units, embedding_dim, batch_size, length, torch_target, keras_target):
    name = f"LSTM {units}, E {embedding_dim}, B {batch_size}, T {length}, float32"
    return Row(
        name,
        "lstm",
        batch_size,
        length,
        embedding_dim,
        units=units,
        torch_target=torch_target,
        keras_target=keras_target,
    )


def _transformer(num_layers, embedding_dim, num_heads, batch_size, length, torch_target, keras_target):
    sizes = {"num_layers": num_layers, "num_heads": num_heads}
    name = f"Transformer {num_layers} x {embedding_dim}, H {num_heads}, B {batch_size}, T {length}, float32"
    asked = {"torch_target": torch_target, "keras_target": keras_target}
    return Row(name, "transformer", batch_size, length, embedding_dim, **sizes, **asked)


ROWS = (
    *_both(_lstm(1024, 128, 50, 200, 0.95, 1.5), 0.9, 3.0),
    *_both(_lstm(256, 128, 50, 200, 0.9, 1.2), 0.9, 2.0),
    *_both(_lstm(384, 64, 12, 64, 0.7, 1.5), 0.6, 1.8),
    _transformer(4, 128, 4, 12, 64, 1.0, 1.3),
    *_both(_transformer(6, 384, 6, 64, 256, 0.9, 1.3), 0.8, 1.8),
    Row("attention, T 4096, H 6, K 64", "attention", 1, 4096, 384, num_heads=6, torch_target=0.7, keras_target=2.0),
)

TINY = (  # two kinds are enough: each takes three processes
    Row("Transformer 1 x 8", "transformer", 2, 8, 8, num_heads=2, precision="bfloat16"),
    Row("attention, T 16", "attention", 1, 16, 8, num_heads=2),
)


def growth() -> dict[str, tuple[Row, ...]]:
    """What one quantity after the other, by itself, does to the time of a step."""
    lstm = Row("LSTM 256", "lstm", 16, 128, 64, units=256)
    transformer = Row("Transformer 2 x 128", "transformer", 16, 128, 128, num_layers=2, num_heads=4)
    attends = Row("attention, H 6, K 64", "attention", 1, 64, 384, num_heads=6)
    found = {"attention, T": tuple(dataclasses.replace(attends, length=n) for n in (64, 256, 1024, 2048, 4096))}
    for base in (lstm, transformer):
        widths = "units" if base.kind == "lstm" else "embedding_dim"
        ladders = {
            "T": ("length", (64, 256, 1024)),
            "B": ("batch_size", (1, 4, 16, 64)),
            "D": (widths, (64, 128, 256, 512)),
            "V": ("vocabulary_size", (65, 1000, 8000)),
            "layers": ("num_layers", (1, 2, 4)),
        }
        for letter, (field, values) in ladders.items():
            found[f"{base.name}, {letter}"] = tuple(dataclasses.replace(base, **{field: n}) for n in values)
    return found


def size(row: Row, ladder: str) -> int:
    """The quantity that a ladder of `growth` changes, in this row."""
    letter = ladder.rsplit(", ", 1)[1]
    width = row.units if row.kind == "lstm" else row.embedding_dim
    return {
        "T": row.length,
        "B": row.batch_size,
        "D": width,
        "V": row.vocabulary_size,
        "layers": row.num_layers,
    }[letter]

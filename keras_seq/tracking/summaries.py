"""What one look at a model found."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Summaries:
    """Figures, texts, pictures and histograms by name, as a validation gives them. `a | b` is both, b where they clash.

    Args:
        figures: numbers; `nats_per_token` stands in one chart with the training loss. What has a group before its
            name (`gates_below_0.1/lstm_0/forget`) is detail: TensorBoard and metrics.jsonl have it, `line` does not.
        texts: what the model writes.
        pictures: `[height, width, 3]`, uint8.
        histograms: the values to be counted, of any shape.
    """

    scalars: dict[str, float]
    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    images: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    histograms: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __or__(self, other):
        return Summaries(*(getattr(self, f.name) | getattr(other, f.name) for f in dataclasses.fields(self)))

    @property
    def line(self) -> str:
        """The figures in words: `validation 1.218 (with context 1.156)   bits per character 1.7574`."""
        shown = {name: value for name, value in self.scalars.items() if "/" not in name}
        return "   ".join(f"{name} {value:.4f}" for name, value in shown.items())

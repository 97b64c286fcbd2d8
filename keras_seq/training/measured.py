"""What one look at a model found."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Measured:
    """Figures, texts and pictures by name, as a validation gives them.

    Args:
        figures: numbers; `nats_per_token` stands in one chart with the training loss.
        texts: what the model writes.
        pictures: `[height, width, 3]`, uint8.
    """

    figures: dict[str, float]
    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    pictures: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def line(self) -> str:
        """The figures in words."""
        return "   ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.figures.items())

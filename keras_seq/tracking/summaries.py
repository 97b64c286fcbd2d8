"""Hold the results of one validation: scalars, texts, images and histograms to log."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Summaries:
    """Hold scalars, texts, images and histograms by name; `a | b` joins two, with b's value for a name in both.

    Args:
        scalars: Numbers. `val_loss` shares a chart with the training loss. A name with a group before it
            (`gate_saturation/closed/lstm_0/forget`) goes to TensorBoard and metrics.jsonl, not to `format_scalars`.
        texts: Strings, such as generated text.
        images: uint8 `[height, width, 3]`.
        histograms: Values to count, of any shape.
    """

    scalars: dict[str, float]
    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    images: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    histograms: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __or__(self, other):
        """Return both; where names clash, the right one counts."""
        return Summaries(*(getattr(self, f.name) | getattr(other, f.name) for f in dataclasses.fields(self)))

    def format_scalars(self) -> str:
        """Return the ungrouped scalars as one line: `validation: loss 1.218, loss_streaming 1.156`."""
        values = (f"{name.removeprefix('val_')} {value:.4g}" for name, value in self.scalars.items() if "/" not in name)
        return f"validation: {', '.join(values)}"

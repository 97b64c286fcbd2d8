"""Hold the results of one validation: scalars, texts, images and histograms to log.

Figures become images without pyplot, so that no global state of the calling program changes.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from keras_seq.tokenizers.base import show_whitespace

SAMPLE = "_sample"  # at the end of the name of a number that is of a part of the validation data
DPI = 100  # pixels per inch
LABEL_STYLE = {"fontsize": 7, "family": "DejaVu Sans Mono", "parse_math": False}


@dataclasses.dataclass(frozen=True)
class Summaries:
    """Hold scalars, texts, images and histograms by name; `a | b` joins two, with b's value for a name in both.

    Args:
        scalars: Numbers for the trackers and metrics.jsonl. A name with a group before it
            (`gate_saturation/closed/lstm_0/forget`) is not in `format_scalars`.
        texts: Strings, such as generated text.
        images: uint8 `[height, width, 3]`, or `[N, height, width, 3]` for several under one name.
        histograms: Values to count, of any shape.
        curves: Numbers for the trackers alone, under names with a group: each is a chart of TensorBoard's Custom
            Scalars page, and together they replace the group's scalars there, as averages replace noisy numbers.
        descriptions: What a name or a group stands for, with its unit; the title of a curve's chart.
    """

    scalars: dict[str, float]
    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    images: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    histograms: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    curves: dict[str, float] = dataclasses.field(default_factory=dict)
    descriptions: dict[str, str] = dataclasses.field(default_factory=dict)

    def __or__(self, other):
        """Return both; where names clash, the right one counts."""
        return Summaries(*(getattr(self, f.name) | getattr(other, f.name) for f in dataclasses.fields(self)))

    def of_sample(self) -> "Summaries":
        """Return these with `_sample` at the end of each ungrouped scalar's name: numbers of a part of the data."""
        scalars = {name if "/" in name else f"{name}{SAMPLE}": value for name, value in self.scalars.items()}
        return dataclasses.replace(self, scalars=scalars)

    @property
    def charted(self) -> dict[str, float]:
        """Return the numbers that are drawn: the curves, and the scalars of groups that they do not replace."""
        replaced = {name.partition("/")[0] for name in self.curves}
        return {n: v for n, v in self.scalars.items() if n.partition("/")[0] not in replaced} | self.curves

    def format_scalars(self) -> str:
        """Return the ungrouped scalars as one line: `validation: loss 1.218`, `validation sample: loss 1.221`."""
        scalars = {name: value for name, value in self.scalars.items() if "/" not in name}
        names = (name.removesuffix(SAMPLE).removeprefix("val_") for name in scalars)
        values = (f"{name} {value:.4g}" for name, value in zip(names, scalars.values(), strict=True))
        return f"validation{' sample' if any(name.endswith(SAMPLE) for name in scalars) else ''}: {', '.join(values)}"


def scored_key(name: str, scalars: Mapping) -> str:
    """Return the key of a number, such as `val_loss`, in the scalars of a validation, which may be of a sample."""
    return f"{name}{SAMPLE}" if f"{name}{SAMPLE}" in scalars else name


def to_pixels(figure) -> np.ndarray:
    """Return a figure as uint8 `[height, width, 3]`, at DPI pixels per inch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here, as a training without pictures needs none

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def label(token: str) -> str:
    """Return a token as a label: white space as symbols, characters missing from the font as boxes."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont(LABEL_STYLE["family"]))
    return "".join(c if font.get_char_index(ord(c)) else "□" for c in show_whitespace(token))

"""From a figure to pixels, without pyplot: nothing global is touched in somebody else's program."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from keras_seq.tokenizers.show_whitespace import show_whitespace

LETTERS = {"fontsize": 7, "family": "DejaVu Sans Mono", "parse_math": False}


def to_pixels(figure: Figure, dpi=100) -> np.ndarray:
    """The figure as `[height, width, 3]`, uint8."""
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def label(piece) -> str:
    """A token as text of a picture: what cannot be seen as a sign, what the font lacks as a box."""
    font = get_font(findfont(LETTERS["family"]))
    return "".join(c if font.get_char_index(ord(c)) else "□" for c in show_whitespace(piece))

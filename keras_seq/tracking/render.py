"""Render matplotlib figures to pixels without pyplot, so that no global state of the calling program changes."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from keras_seq.tokenizers.show_whitespace import show_whitespace

DPI = 100  # pixels per inch
LABEL_STYLE = {"fontsize": 7, "family": "DejaVu Sans Mono", "parse_math": False}


def to_pixels(figure: Figure) -> np.ndarray:
    """Return a figure as uint8 `[height, width, 3]`, at DPI pixels per inch."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def label(token: str) -> str:
    """Return a token as a label: white space as symbols, characters missing from the font as boxes."""
    font = get_font(findfont(LABEL_STYLE["family"]))
    return "".join(c if font.get_char_index(ord(c)) else "□" for c in show_whitespace(token))

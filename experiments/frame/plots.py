"""Save matplotlib figures as PNG files, render them as pixels for TensorBoard, and style their axes."""

import os

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keras_seq.atomic_files import atomic_write
from keras_seq.callbacks.render import to_pixels


def save(figure: Figure, path: str | os.PathLike[str]):
    """Write the figure as a PNG and close it.

    Args:
        figure: A figure made by pyplot.
        path: File to write, with the suffix .png.
    """
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=130)
    plt.close(figure)


def pixels(figure: Figure) -> np.ndarray:
    """Render the figure as uint8 `[height, width, 3]` and close it."""
    image = to_pixels(figure)
    plt.close(figure)
    return image


def style_axes(axes: Axes):
    """Draw a faint grid and remove the top and right spines."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)

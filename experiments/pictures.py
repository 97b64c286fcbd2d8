"""Figures of matplotlib as files, and as pixels for TensorBoard."""

import io

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from keras_seq.atomic_files import atomic_write


def save(figure, path):
    """Writes a PNG and closes the figure."""
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=130)
    plt.close(figure)


def pixels(figure) -> np.ndarray:
    """The figure as `[height, width, 3]`, uint8; closes it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="rgba", dpi=100)
    plt.close(figure)
    width, height = figure.canvas.get_width_height()
    return np.frombuffer(buffer.getvalue(), np.uint8).reshape(height, width, 4)[..., :3].copy()


def plain(axes):
    """A faint grid, no box: how all curves of this project look."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)

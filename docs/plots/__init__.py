"""Plots of the documentation pages: one module per page (docs/rnn-lstm.md: rnn_lstm.py), one function per image.

PLOTS of a module maps file names to functions: {"gradients.svg": plot_gradients}. Each function takes no arguments
and returns a matplotlib figure, which is saved as docs/images/rnn-lstm-gradients.svg. Line plots are .svg, heat maps
.png, none above 100 kB. SLOW of a module names what takes more than three seconds.

Measurements that train for longer than a page should are listed in MEASUREMENTS: {"gradients.json": measure_gradients}.
Each function takes no arguments and returns what JSON can hold, which is saved as docs/results/rnn-lstm-gradients.json
and read by pages and plots.
"""

import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]  # Okabe & Ito: safe for color blindness
GRAY = "#666666"
STYLE = {
    "axes.prop_cycle": matplotlib.cycler(color=COLORS),
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.facecolor": "white",
    "figure.titlesize": 11,
    "font.size": 9,
    "grid.alpha": 0.25,
    "savefig.facecolor": "white",
    "svg.hashsalt": "keras_seq",  # the same ids every time
}


RESULTS = pathlib.Path(__file__).parents[1] / "results"


def load_results(name):
    """Return the content of docs/results/`name`."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def subplots(columns=1, rows=1, width=7.2, height=2.6, **kwargs):
    """Return a figure of `width` inches with rows of `height` inches, and its axes (one, or an array)."""
    return plt.subplots(rows, columns, figsize=(width, rows * height), layout="constrained", **kwargs)

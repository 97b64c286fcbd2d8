"""The drawings of the pages: a module a page (docs/rnn-lstm.md: rnn_lstm.py), a function a picture.

A module's FIGURES names what it draws: {"gradients.svg": gradients}; the function takes nothing and gives a matplotlib
figure, which becomes docs/pictures/rnn-lstm-gradients.svg. Lines are .svg, coloured maps .png, none above 100 kB; what
takes more than three seconds is named in the module's SLOW.

What trains for longer than a page should is a measurement: MEASURES = {"carry.json": carry}, a function that takes
nothing and gives what JSON can hold. It becomes docs/results/rnn-lstm-carry.json, which pages and drawings read.
"""

import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]  # Okabe & Ito: told apart by all eyes
GREY = "#666666"
STYLE = {
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
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


def results(name):
    """What was measured: docs/results/`name`."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def panes(columns=1, rows=1, width=7.2, height=2.6, **kwargs):
    """A figure of `width` inches with rows of `height`, and its axes (one, or an array)."""
    return plt.subplots(rows, columns, figsize=(width, rows * height), layout="constrained", **kwargs)

import itertools
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from keras_seq.reports import plots


def figure():
    figure, axes = plt.subplots(figsize=(3, 2), facecolor="red")
    axes.set_axis_off()
    return figure


@pytest.fixture
def axes():
    figure, axes = plots.subplots()
    yield axes
    plt.close(figure)


def test_plots_of_the_calling_program_keep_their_style():
    plt.switch_backend("svg")
    before = dict(plt.rcParams)
    with plots.style():
        assert (plt.get_backend().lower(), plt.rcParams["legend.frameon"]) == ("agg", False)
    assert dict(plt.rcParams) == before
    plt.switch_backend("agg")


def test_pixels_are_rows_of_red_green_and_blue():
    image = plots.pixels(figure())
    assert (image.shape, image.dtype) == ((200, 300, 3), np.uint8)
    np.testing.assert_array_equal(image[0, 0], [255, 0, 0])


def test_a_file_is_there_and_the_figure_is_closed(tmp_path):
    before = plt.get_fignums()
    plots.save(figure(), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert plt.get_fignums() == before


def test_a_name_has_one_color():
    assert plots.colors(["lstm", "gru", "lstm"]) == {"lstm": "C0", "gru": "C1"}
    names = "abcdefghijklmnopqrstuvwxyz"[: plots.NUM_COLORS]
    assert len({*plots.colors(names).values()}) == plots.NUM_COLORS == 20


def test_a_curve_is_read_from_the_run(tmp_path):
    lines = [{"step": n, "tokens": 10 * n, "split": "train", "loss": 3.0 - n} for n in (1, 2)]
    lines.append({"step": 2, "tokens": 20, "split": "validation", "val_loss": 1.5})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert plots.curve(tmp_path) == ([20], [1.5])
    assert plots.curve(tmp_path, "loss", "train") == ([10, 20], [2.0, 1.0])


def test_the_axis_of_tokens_counts_in_thousands(axes):
    plots.token_axis(axes)
    assert axes.xaxis.get_major_formatter()(12_500) == "12.5 k"


def test_a_legend_has_colors_then_styles_in_gray(axes):
    plots.legend(axes, {"lstm": "C0"}, {"training": {"linestyle": ":"}})
    lines = axes.get_legend().get_lines()
    assert [(line.get_label(), line.get_color()) for line in lines] == [("lstm", "C0"), ("training", "0.3")]


@given(st.lists(st.floats(-10, 10), max_size=8), st.floats(0.01, 3))
def test_values_are_moved_apart_upwards_and_keep_their_order(values, distance):
    moved = plots.spread(values, distance)
    assert all(new >= old for old, new in zip(values, moved, strict=True))
    order = np.argsort(values, kind="stable")
    assert all(moved[b] - moved[a] >= distance - 1e-9 for a, b in itertools.pairwise(order))


def test_labels_at_the_ends_of_curves_do_not_collide(axes):
    ends = {f"model {n}": (100.0, 1.0 + 0.001 * n, f"C{n}") for n in range(6)}
    for x, y, color in ends.values():
        axes.plot([0, x], [2, y], color=color)
    plots.label_ends(axes, ends)
    axes.figure.canvas.draw()
    boxes = sorted((Text.get_window_extent(label) for label in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == 6
    assert all(a.y1 <= b.y0 + 1 for a, b in itertools.pairwise(boxes))

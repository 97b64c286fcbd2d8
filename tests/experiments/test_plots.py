import matplotlib.pyplot as plt
import numpy as np

from experiments.frame import plots


def figure():
    figure, axes = plt.subplots(figsize=(3, 2), facecolor="red")
    axes.set_axis_off()
    return figure


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

"""Every image can be plotted; docs/images and docs/results hold what docs/plots names, and the pages use it."""

import json
import pathlib

import keras
import make_images
import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def parameters(kind):
    """Return the PLOTS or MEASUREMENTS of all pages as parameters of a test."""
    cases = []
    for page in make_images.pages():
        module = make_images.plot_module(page)
        for name in getattr(module, kind, {}):
            slow = name in getattr(module, "SLOW", ())
            cases.append(pytest.param(page, name, id=f"{page}-{name}", marks=[pytest.mark.slow] if slow else []))
    return cases


@pytest.mark.rare
@pytest.mark.parametrize(("page", "name"), parameters("PLOTS"))
def test_an_image_is_plotted(page, name, tmp_path):
    path = make_images.save_image(page, name, tmp_path)
    assert path.suffix in (".svg", ".png")
    assert 0 < path.stat().st_size < 100_000


@pytest.mark.parametrize("page", make_images.pages())
def test_the_images_of_a_page_are_its_plots(page):
    names = {f"{page}-{name}" for name in make_images.plot_module(page).PLOTS}
    assert {path.name for path in make_images.IMAGES.glob(f"{page}-*")} == names


@pytest.mark.parametrize(("page", "name"), [parameter.values for parameter in parameters("PLOTS")])
def test_an_image_is_on_its_page(page, name):
    assert f"](images/{page}-{name})" in (DOCS / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", make_images.pages())
def test_the_results_of_a_page_are_its_measurements(page):
    names = {f"{page}-{name}" for name in getattr(make_images.plot_module(page), "MEASUREMENTS", {})}
    assert {path.name for path in make_images.RESULTS.glob(f"{page}-*")} == names
    for name in names:
        assert f"results/{name}" in (DOCS / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.rare
@pytest.mark.parametrize(("page", "name"), parameters("MEASUREMENTS"))
def test_a_measurement_reproduces_its_results(page, name, tmp_path):
    def numbers(path):
        return keras.tree.flatten_with_path(json.loads(path.read_text(encoding="utf-8")))

    again, before = (
        numbers(make_images.save_measurement(page, name, tmp_path)),
        numbers(make_images.RESULTS / f"{page}-{name}"),
    )
    assert [path for path, _ in again] == [path for path, _ in before]
    for (path, number), (_, expected) in zip(again, before, strict=True):
        assert number == pytest.approx(expected, rel=0.02, abs=0.02), path


def test_a_page_without_plots_is_refused():
    assert {"rnn-lstm", "attention", "positions"} <= set(make_images.pages())
    with pytest.raises(SystemExit, match="no plots for nothing; expected one of attention"):
        make_images.main(["rnn-lstm", "nothing"])

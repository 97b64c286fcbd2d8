"""Every figure can be plotted; docs/images and docs/results hold what docs/plots names, and the pages use it."""

import json
import pathlib

import figures
import keras
import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def parameters(kind):
    """Return the FIGURES or MEASUREMENTS of all pages as parameters of a test."""
    cases = []
    for page in figures.pages():
        module = figures.plot_module(page)
        for name in getattr(module, kind, {}):
            slow = name in getattr(module, "SLOW", ())
            cases.append(pytest.param(page, name, id=f"{page}-{name}", marks=[pytest.mark.slow] if slow else []))
    return cases


@pytest.mark.parametrize(("page", "name"), parameters("FIGURES"))
def test_a_figure_is_plotted(page, name, tmp_path):
    path = figures.save_figure(page, name, tmp_path)
    assert path.suffix in (".svg", ".png")
    assert 0 < path.stat().st_size < 100_000


@pytest.mark.parametrize("page", figures.pages())
def test_the_images_of_a_page_are_its_figures(page):
    names = {f"{page}-{name}" for name in figures.plot_module(page).FIGURES}
    assert {path.name for path in figures.IMAGES.glob(f"{page}-*")} == names


@pytest.mark.parametrize(("page", "name"), [parameter.values for parameter in parameters("FIGURES")])
def test_a_figure_is_shown_on_its_page(page, name):
    assert f"](images/{page}-{name})" in (DOCS / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", figures.pages())
def test_the_results_of_a_page_are_its_measurements(page):
    names = {f"{page}-{name}" for name in getattr(figures.plot_module(page), "MEASUREMENTS", {})}
    assert {path.name for path in figures.RESULTS.glob(f"{page}-*")} == names
    for name in names:
        assert f"results/{name}" in (DOCS / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "name"), parameters("MEASUREMENTS"))
def test_a_measurement_reproduces_its_results(page, name, tmp_path):
    def numbers(path):
        return keras.tree.flatten_with_path(json.loads(path.read_text(encoding="utf-8")))

    again, before = numbers(figures.save_measurement(page, name, tmp_path)), numbers(figures.RESULTS / f"{page}-{name}")
    assert [path for path, _ in again] == [path for path, _ in before]
    for (path, number), (_, expected) in zip(again, before, strict=True):
        assert number == pytest.approx(expected, rel=0.02, abs=0.02), path


def test_a_page_without_plots_is_refused():
    assert {"rnn-lstm", "attention", "positions"} <= set(figures.pages())
    with pytest.raises(SystemExit, match="no plots for nothing; expected one of attention"):
        figures.main(["rnn-lstm", "nothing"])

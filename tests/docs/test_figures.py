"""Every drawing can be drawn; docs/pictures and docs/results hold what docs/drawing names, and the pages use it."""

import json
import pathlib

import figures
import keras
import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def named(kind):
    """The FIGURES or MEASURES of all pages, as parameters of a test."""
    parameters = []
    for page in figures.pages():
        drawings = figures.drawings(page)
        for name in getattr(drawings, kind, {}):
            slow = name in getattr(drawings, "SLOW", ())
            parameters.append(pytest.param(page, name, id=f"{page}-{name}", marks=[pytest.mark.slow] if slow else []))
    return parameters


@pytest.mark.parametrize(("page", "name"), named("FIGURES"))
def test_a_picture_is_drawn(page, name, tmp_path):
    path = figures.draw(page, name, tmp_path)
    assert path.suffix in (".svg", ".png")
    assert 0 < path.stat().st_size < 100_000


@pytest.mark.parametrize("page", figures.pages())
def test_the_pictures_of_a_page_are_those_of_its_drawings(page):
    names = {f"{page}-{name}" for name in figures.drawings(page).FIGURES}
    assert {path.name for path in figures.PICTURES.glob(f"{page}-*")} == names


@pytest.mark.parametrize(("page", "name"), [parameter.values for parameter in named("FIGURES")])
def test_a_picture_stands_on_its_page(page, name):
    assert f"](pictures/{page}-{name})" in (DOCS / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", figures.pages())
def test_the_results_of_a_page_are_those_of_its_measurements(page):
    names = {f"{page}-{name}" for name in getattr(figures.drawings(page), "MEASURES", {})}
    assert {path.name for path in figures.RESULTS.glob(f"{page}-*")} == names
    for name in names:
        assert f"results/{name}" in (DOCS / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "name"), named("MEASURES"))
def test_a_measurement_gives_what_the_page_says(page, name, tmp_path):
    def numbers(path):
        return keras.tree.flatten_with_path(json.loads(path.read_text(encoding="utf-8")))

    again, before = numbers(figures.measure(page, name, tmp_path)), numbers(figures.RESULTS / f"{page}-{name}")
    assert [path for path, _ in again] == [path for path, _ in before]
    for (path, number), (_, expected) in zip(again, before, strict=True):
        assert number == pytest.approx(expected, rel=0.02, abs=0.02), path


def test_a_page_without_drawings_is_refused():
    assert {"rnn-lstm", "attention", "positions"} <= set(figures.pages())
    with pytest.raises(SystemExit, match="no drawings for nothing; there are some for attention"):
        figures.main(["rnn-lstm", "nothing"])

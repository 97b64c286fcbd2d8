"""docs/pitfalls.md has ten mistakes, each wrong first and then right. tests/docs/test_pages.py runs them."""

import pathlib
import re

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "pitfalls.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]


def test_the_mistakes_are_numbered():
    assert [int(section.split(".")[0]) for section in SECTIONS] == list(range(1, 11))


@pytest.mark.parametrize("section", SECTIONS, ids=[section.splitlines()[0] for section in SECTIONS])
def test_each_mistake_has_a_wrong_and_a_right_line(section):
    lines = [line for line in section.splitlines() if line.startswith(">>> ")]
    wrong, right = (next(n for n, line in enumerate(lines) if name in line) for name in ("wrong =", "right ="))
    assert wrong <= right <= wrong + 1
    assert "\nHere: " in section

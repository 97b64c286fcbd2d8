"""Links of the pages and the README have targets: the file, its heading, the name in the code.

If the text of a link to a Python file is a name, as in [`lstm_cell`](../keras_seq/ops/lstm/__init__.py), the file
defines it.
Links to the web are checked for their form only. A test file that is named without a link is there, too.
"""

import re
import urllib.parse

import pytest

from tests.processes import ROOT

PAGES = [*ROOT.glob("*.md"), ROOT / "logs" / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("experiments/**/*.md")]
LINK = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)")


def prose(page):
    """Return the text of a page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?:^(?: {4}|\t).*\n)+", "", text, flags=re.MULTILINE)


def anchors(page):
    """Return the anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ +(.*?) *#*$", prose(page), flags=re.MULTILINE)
    plain = [re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


LINKS = [
    (page, text, target)
    for page in PAGES
    for text, target in dict.fromkeys(LINK.findall(prose(page)))
    if not target.startswith("generated/")  # pages that `make docs` writes
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_have_targets(page):
    for of_page, text, target in LINKS:
        if of_page == page:
            check_link(page, text, target)


def check_link(page, text, target):
    parts = urllib.parse.urlsplit(target)
    if parts.scheme:
        assert parts.scheme == "https", target
        assert re.fullmatch(r"(\w[\w-]*\.)+\w{2,}", parts.netloc), target
        return
    path = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
    assert path.is_relative_to(ROOT), target
    assert path.exists(), target
    if parts.fragment:
        assert path.suffix == ".md", f"{target}: an anchor only into a page; lines of code move"
        assert parts.fragment in anchors(path), target
    if path.suffix == ".py" and (name := re.fullmatch(r"`(?:\w+\.)?(\w+)`", text)):
        code = path.read_text(encoding="utf-8")
        assert re.search(rf"^ *(?:(?:def|class) {name[1]}\b|{name[1]} = )", code, flags=re.MULTILINE), text


def test_the_test_files_that_are_named_are_there():
    for page in (ROOT / "Makefile", *PAGES):
        if page.parent.name != "log":  # a day's entry keeps the names of the day
            for name in re.findall(r"\btests/\w+/\w+\.py", page.read_text(encoding="utf-8")):
                assert (ROOT / name).exists() or "/test_my_" in name, f"{page.relative_to(ROOT)} names {name}"


def test_the_pattern_matches_links_and_images():
    assert LINK.findall("a [b](c.md#d) ![e [f]](g_(h).png)") == [("b", "c.md#d"), ("e [f]", "g_(h).png")]
    assert len({page for page, _, _ in LINKS}) > 1

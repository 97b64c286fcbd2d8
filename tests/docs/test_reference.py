"""Test the site's generated pages; `make docs` builds the site itself."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

griffe = pytest.importorskip("griffe", reason='the site needs pip install -e ".[docs]"')

import reference  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/layers.md"


def test_a_link_out_of_docs_goes_to_the_definition_on_the_page_with_the_file():
    text = (
        "[`lstm_cell`](../keras_seq/ops/lstm/__init__.py), [a page](layers.md#residual), [b](https://example.org/c.py)"
    )
    expected = text.replace("../keras_seq/ops/lstm/__init__.py", "#keras_seq/ops/lstm/__init__.py:lstm_cell")
    assert reference.redirect(text, PAGE) == expected
    assert reference.redirect(f"```\n{text}\n```", PAGE) == f"```\n{text}\n```"
    security = "[m](/generated/source/SECURITY.md#a)"
    assert reference.redirect("[m](../SECURITY.md#a) ![p](zoo.png)", PAGE) == f"{security} ![p](zoo.png)"
    assert "(keras_seq/ops/lstm/__init__.py:lstm_cell)=\n\n`````python\ndef lstm_cell(" in reference.source_text(
        "keras_seq/ops/lstm/__init__.py"
    )


def test_a_page_of_the_root_links_back_into_the_site():
    assert reference.redirect("[g](docs/glossary.md)", ROOT / "CHANGELOG.md") == "[g](/glossary.md)"


def test_every_package_with_public_names_is_in_the_reference():
    packages = {
        path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for path in ROOT.glob("keras_seq/**/__init__.py")
        if "__all__" in path.read_text(encoding="utf-8") and path.parent.parent.name != "ops"  # of one operation each
    }
    names = reference.exported_names()
    assert packages == {name for name, exported in names.items() if exported}
    listed = (ROOT / "docs/site/reference.md").read_text(encoding="utf-8")
    assert re.findall(r"generated/reference/(\S+)", listed) == [*names]


def test_every_public_name_has_a_first_sentence():
    package = griffe.load("keras_seq", search_paths=[ROOT], allow_inspection=False)
    for name, names in reference.exported_names().items():
        module = package if name == "keras_seq" else package[name.partition(".")[2]]
        silent = [n for n in names if not reference.first_sentence(module, n).endswith((".", "?"))]
        assert not silent, (name, silent)


def test_the_page_of_a_layer_has_its_signature_arguments_and_methods():
    layers = griffe.load("keras_seq", search_paths=[ROOT], allow_inspection=False)["layers"]
    page = reference.reference_page("keras_seq.layers.LSTM", reference.resolve(layers, "LSTM"))
    assert re.search(r"\{py:class\} keras_seq\.layers\.LSTM\(units, ", page)
    assert "**Args**\n\n- `units`: " in page
    assert "{py:method} get_initial_state(" in page


def test_examples_in_docstrings_become_code():
    fenced = reference.fence_doctests("Text.\n\n>>> a = [1,\n...      2]\n>>> a\n[1, 2]\n\n>>> b\n3\n\nMore.")
    assert fenced == "Text.\n\n```pycon\n>>> a = [1,\n...      2]\n>>> a\n[1, 2]\n\n>>> b\n3\n```\n\nMore."
    assert reference.fence_doctests("No example.") == "No example."


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_the_network(tmp_path):
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", "docs", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=os.environ, check=True)
    names = {path.name for path in tmp_path.rglob("*.html")}
    assert {"index.html", "transformer.html", "keras_seq.layers.LSTM.html", "CONTRIBUTING.html"} <= names
    for path in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r'<(?:link|script|img)\b[^>]*(?:href|src)="(https?:[^"]*)', path.read_text(encoding="utf-8")
        )
        assert not loaded, (path, loaded)


def test_the_page_of_a_notebook_is_the_notebook_with_its_links_turned():
    page = reference.source_text("notebooks/layers.ipynb")
    assert "[Layers](/layers.md)" in page
    assert "(/generated/source/notebooks/first_steps.ipynb)" in page
    assert reference.source_page("notebooks/layers.ipynb") == "generated/source/notebooks/layers.ipynb"

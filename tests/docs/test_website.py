"""docs/website.py and docs/docstrings.py convert links and docstrings. `make docs` tests the site itself."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("mkdocs", reason='the site is built by what pip install -e ".[docs]" brings')
pytest.importorskip("griffe")

import docstrings
import website

import keras_seq

ROOT = pathlib.Path(__file__).parents[2]


def test_a_link_out_of_docs_goes_to_a_page_with_the_file():
    text = "[`lstm_cell`](../keras_seq/layers/lstm.py), [a page](layers.md#residual), [b](https://example.org/c.py)"
    expected = text.replace("../keras_seq/layers/lstm.py", "source/keras_seq/layers/lstm.py.md")
    assert website.redirect_links(text) == expected
    assert website.redirect_links(f"```\n{text}\n```") == f"```\n{text}\n```"
    assert website.redirect_links("[m](../SECURITY.md#a)") == "[m](source/SECURITY.md.md#a)"
    assert website.redirect_links("[m](figures.py) ![p](zoo.png)") == "[m](source/docs/figures.py.md) ![p](zoo.png)"


def test_a_link_to_a_name_goes_to_its_line():
    html = website.on_page_content('<a href="source/keras_seq/layers/lstm.py.html"><code>lstm_cell</code></a>', 0, 0, 0)
    number = int(html.split("#__line-0-")[1].split('"')[0])
    line = (ROOT / "keras_seq/layers/lstm.py").read_text(encoding="utf-8").splitlines()[number - 1]
    assert line.startswith("def lstm_cell(")
    assert html.endswith("<code>lstm_cell</code></a>")


def test_every_package_has_a_page_of_reference():
    assert {f"keras_seq.{package}" for package in website.packages()} >= {"keras_seq.tokenizers", "keras_seq.layers"}
    for package in website.packages():
        assert website.reference(package).startswith(f"# keras_seq.{package}\n")


@pytest.mark.parametrize("name", keras_seq.layers.__all__)
def test_every_public_layer_is_in_the_reference(name):
    assert f'"{name}"' in website.reference("layers")


def test_examples_in_docstrings_become_code():
    fenced = docstrings.fence_examples("Text.\n\n>>> a = [1,\n...      2]\n>>> a\n[1, 2]\n\n>>> b\n3\n\nMore.")
    assert fenced == "Text.\n\n```pycon\n>>> a = [1,\n...      2]\n>>> a\n[1, 2]\n\n>>> b\n3\n```\n\nMore."
    assert docstrings.fence_examples("No example.") == "No example."


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_the_network(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    pages = [path for path in tmp_path.rglob("*.html") if "source" not in path.parts]
    assert {"index.html", "transformer.html", "layers.html"} <= {path.name for path in pages}
    for path in pages:
        assert not re.findall(r'<(?:link|script|img)\b[^>]*(?:href|src)="https?:', path.read_text(encoding="utf-8")), (
            path
        )

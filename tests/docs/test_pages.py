"""The Python blocks of every page of docs/ run in order and print what the page says.

The blocks of a page share their names. A block that begins with >>> is a doctest: numbers are compared to the precision
that is printed. The blocks of docs/layers.md run in tests/docs/test_layers_page.py, those of docs/index.md in
tests/docs/test_home.py.
"""

import contextlib
import re

import pytest
from sybil import Sybil
from sybil.evaluators.doctest import NUMBER
from sybil.parsers.markdown import PythonCodeBlockParser

from keras_seq.models import MODELS
from tests.conftest import functions_run_eagerly, often
from tests.processes import ROOT

PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if path.stem not in ("layers", "index"))
# they train, compile, build many models
LONG = ("data", "stateful", "tensorboard", "transformer", "interpretability", "generation", "pretrained", "recurrent")
LONG += ("exports",)


@pytest.mark.filterwarnings("ignore:.* reads the whole text again for every token:UserWarning")  # as a page says
@often("page", {path.stem: path for path in PAGES}, [path.stem for path in PAGES if path.stem not in LONG])
def test_the_blocks_of_a_page_run(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for package in ("torch", "onnxscript", "ai_edge_litert") if page.stem == "exports" else ():
        pytest.importorskip(package)
    try:
        with functions_run_eagerly() if page.stem == "training" else contextlib.nullcontext():
            for example in Sybil([PythonCodeBlockParser(doctest_optionflags=NUMBER)]).parse(page):
                example.evaluate()
    finally:
        MODELS.pop("my_model", None)  # which docs/experiments.md registers


@pytest.mark.parametrize("name", ["rnn-lstm", "attention", "positions"])
def test_a_number_in_the_text_is_one_that_a_block_has(name):
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?^```", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    for number in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", text):
        assert any(re.search(rf"(?<![\d.]){re.escape(number)}", block) for block in blocks), number

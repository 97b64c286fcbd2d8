"""The table of docs/masks.md has the numbers of the installed Keras. The blocks of the page run in test_pages.py."""

import pathlib
import re

import keras
import pytest

import keras_seq
from tests.conftest import ignores_dropped_masks

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "masks.md").read_text(encoding="utf-8")
PROGRAM = re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
TABLE = re.findall(r"^\| .*`(keras|keras_seq)\.layers\.(\w+)` \| ([\d., ]+) \| ([\d.| ]+) \|$", PAGE, re.MULTILINE)
VERSION = "3.16" if tuple(map(int, keras.__version__.split(".")[:2])) >= (3, 16) else "3.15"
STACKS = {
    "LSTM": lambda layers: [layers.LSTM(8, return_sequences=True)],
    "Bidirectional": lambda layers: [
        layers.Bidirectional(kind(4, return_sequences=True)) for kind in (layers.GRU, layers.LSTM)
    ],
}


@ignores_dropped_masks
@pytest.mark.parametrize("package", [keras, keras_seq], ids=lambda package: package.__name__)
@pytest.mark.parametrize("stack", STACKS)
def test_the_table_has_the_losses_of_the_installed_keras(package, stack):
    rows = [losses for *names, versions, losses in TABLE if names == [package.__name__, stack] and VERSION in versions]
    exec(compile(PROGRAM, "docs/masks.md", "exec"), names := {})
    found = names["losses"](*STACKS[stack](package.layers))
    assert found == pytest.approx([float(cell) for cell in rows[0].split("|")], abs=0.0015)

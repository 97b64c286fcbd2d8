"""Every example of docs/layers.md runs by itself, and every layer has one."""

import pathlib
import re

import pytest

from keras_seq import layers

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "layers.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example):
    exec(compile(example, "docs/layers.md", "exec"), {})


@pytest.mark.parametrize("name", layers.__all__)
def test_a_layer_is_on_the_page(name):
    assert re.search(rf"\b{name}\b", PAGE)

"""Run the Python code of README.md and of the site's home, one block after the other, in an empty folder."""

import pathlib
import re

import pytest

from keras_seq.models import LSTMConfig
from keras_seq.saving import save_model
from keras_seq.tokenizers import CharacterTokenizer

ROOT = pathlib.Path(__file__).parents[2]
SHORT = "TrainConfig(warmup_steps=1, log_every=1, validate_every=2, checkpoint_every=2)"


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/index.md", marks=pytest.mark.rare)])
def test_the_code_of_the_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("def is_it(a, b=1): return a is not b\n" * 200)
    tokenizer = CharacterTokenizer.from_text("ROMEO: to be, or not to be? To\n")
    (tmp_path / "RUN").mkdir()
    tokenizer.save("RUN/tokenizer.json")
    save_model("RUN/model.keras", LSTMConfig(embedding_dim=4, units=8).build_model(tokenizer.vocabulary_size))
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    names = {}
    for block in blocks:
        for long, short in (("=1000", "=2"), ("TrainConfig()", SHORT), ('"docstrings"', '"text.txt"')):
            block = block.replace(long, short)
        exec(compile(block, page, "exec"), names)
    assert "keras_seq" in names
    capsys.readouterr()


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150

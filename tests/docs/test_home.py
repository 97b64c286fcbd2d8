"""Run the Python code of README.md, one block after the other, in an empty folder."""

import pathlib
import re

from keras_seq.models import LSTMConfig
from keras_seq.saving import save_model
from keras_seq.tokenizers import CharacterTokenizer

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SHORT = "TrainConfig(warmup_steps=1, log_every=1, validate_every=2, checkpoint_every=2)"


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("def is_it(a, b=1): return a is not b\n" * 200)
    tokenizer = CharacterTokenizer.from_text("ROMEO: to be, or not to be? To\n")
    (tmp_path / "RUN").mkdir()
    tokenizer.save("RUN/tokenizer.json")
    save_model("RUN/model.keras", LSTMConfig(embedding_dim=4, units=8).build_model(tokenizer.vocabulary_size))
    blocks = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    names = {}
    for block in blocks:
        for long, short in (("=1000", "=2"), ("TrainConfig()", SHORT), ('"docstrings"', '"text.txt"')):
            block = block.replace(long, short)
        exec(compile(block, "README.md", "exec"), names)
    assert "keras_seq" in names
    capsys.readouterr()


def test_readme_is_short():
    assert len(README.splitlines()) <= 150

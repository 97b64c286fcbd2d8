"""Run the Python code of README.md, one block after the other, in an empty folder."""

import pathlib
import re

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SHORTER = {  # texts and trainings
    '"docstrings"': '"text.txt"',
    "minutes=2": "tokens=1600",
    "num_layers=2": "num_layers=1, embedding_dim=16, num_heads=2, feed_forward_dim=16",
}


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("Return the number of items.\n" * 400)
    blocks = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    assert all(long in README for long in SHORTER)
    names = {}
    for block in blocks:
        for long, short in SHORTER.items():
            block = block.replace(long, short)
        exec(compile(block, "README.md", "exec"), names)
    assert "has the lowest val_loss" in capsys.readouterr().out


def test_readme_is_short():
    assert len(README.splitlines()) <= 150

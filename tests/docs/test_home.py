"""Run the Python code of README.md and of docs/index.md, one block after the other, in an empty folder, shortened."""

import re

import pytest

from tests.processes import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHORTER = {  # texts and trainings
    '"docstrings"': '"text.txt"',
    "minutes=2": "tokens=1600, sample_length=20",
    'tokens=run.result["train_tokens"]': "tokens=1600, sample_length=20",
    '"Return the ", ': '"Return the ", 20, ',
    "num_layers=2": "num_layers=1, embedding_dim=16, num_heads=2, feed_forward_dim=16",
    "total_steps=1250": "total_steps=2",
    "TrainConfig()": "TrainConfig(warmup_steps=1, log_every=1, validate_every=2, checkpoint_every=2)",
}


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_code_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("Return the number of items.\n" * 400)
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        for long, short in SHORTER.items():
            block = block.replace(long, short)
        exec(compile(block, page, "exec"), names)
    shown = capsys.readouterr().out
    assert "has the lowest val_loss" in shown if page == "README.md" else names["result"]["val_loss"] > 0


def test_readme_is_short():
    assert len(README.splitlines()) <= 150


def test_the_runs_of_the_home_are_small_and_say_nothing_of_a_machine():
    files = [path for path in (ROOT / "docs/living").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 1_050_000
    for path in files:
        assert b"/tmp" not in path.read_bytes()
        assert b"/home" not in path.read_bytes()

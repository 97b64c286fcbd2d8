import dataclasses
import json

import pytest

from experiments.frame.report import WIDTH, Report, fill, tensorboard_command, without_texts
from experiments.frame.tables import Table

VERDICT = "The LSTM has a loss of 1.500 ± 0.010 nats per character, 0.250 below the Transformer; one seed each. " * 2
TABLE = Table(["model", "loss", "a long note"], [["lstm", "1.500", "n" * 70], ["transformer", "1.750", "m" * 70]])
REPORT = Report(
    "Models on a text",
    VERDICT.strip(),
    TABLE,
    ("model", "loss"),
    [{"model": "lstm", "loss": 1.5}],
    "loss: nats per character.",
    ["![Curves](hello.png)", Table(["seed"], [["7"]])],
    {"Sample of lstm": "to be,\n  or not"},
)


def test_the_file_holds_everything_in_order(tmp_path):
    REPORT.write(tmp_path, "hello")
    assert json.loads((tmp_path / "hello.json").read_text(encoding="utf-8")) == REPORT.data
    text = (tmp_path / "hello.md").read_text(encoding="utf-8")
    parts = ["# Models on a text", REPORT.verdict, str(TABLE), REPORT.notes, *map(str, REPORT.details)]
    parts += ["## Sample of lstm", "    to be,\n      or not"]
    assert text == "\n\n".join(parts) + "\n"
    dataclasses.replace(REPORT, notes="", details=(), samples={}).write(tmp_path, "short")
    assert (tmp_path / "short.md").read_text(encoding="utf-8") == "\n\n".join(parts[:3]) + "\n"


def test_the_terminal_shows_what_fits_into_80_columns_and_the_next_commands(tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("hello.md", "hello.png", "hello.json"):
        (folder / name).touch()
    shown = dataclasses.replace(REPORT, runs=[folder / "lstm-seed0"]).message(folder)
    assert REPORT.verdict.split() == shown.split()[: len(REPORT.verdict.split())]
    assert "| lstm        | 1.500 |" in shown
    assert "nnn" not in shown
    assert "    to be,\n      or not" in shown
    assert f"    {folder / 'hello.md'}\n    {folder / 'hello.png'}\n" in shown
    assert "hello.json" not in shown
    assert f"    {tensorboard_command(folder)}" in shown
    assert f"experiments.inspect_model '{folder}/lstm-seed0'" in shown
    for line in shown.splitlines():
        assert len(line) <= WIDTH or line.startswith("    "), line


@pytest.mark.parametrize("text", [VERDICT, "x" * 200, "a-b " * 50])
def test_words_stay_whole(text):
    assert fill(text).split() == text.split()
    assert max(map(len, fill(text).splitlines())) <= max(WIDTH, *map(len, text.split()))


def test_rows_lose_their_texts_only():
    assert without_texts([{"model": "lstm", "sample": "to be", "predictions": "x"}]) == [{"model": "lstm"}]

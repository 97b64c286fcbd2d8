import dataclasses
import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_seq.reports.tables import (
    WIDTH,
    Report,
    Table,
    command,
    fill,
    perplexity,
    plus_minus,
    shell_command,
    tensorboard_command,
    tera,
    thousands,
    without_texts,
)

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
    assert f"inspect '{folder}/lstm-seed0'" in shown
    for line in shown.splitlines():
        assert len(line) <= WIDTH or line.startswith("    "), line


@pytest.mark.parametrize("text", [VERDICT, "x" * 200, "a-b " * 50])
def test_words_stay_whole(text):
    assert fill(text).split() == text.split()
    assert max(map(len, fill(text).splitlines())) <= max(WIDTH, *map(len, text.split()))


def test_rows_lose_their_texts_only():
    assert without_texts([{"model": "lstm", "sample": "to be", "predictions": "x"}]) == [{"model": "lstm"}]


CELL = st.text("ab1.%-± ", max_size=9).map(str.strip)


@st.composite
def tables(draw):
    columns = draw(st.integers(1, 4))
    line = st.lists(CELL, min_size=columns, max_size=columns)
    return [f"column {name}".strip() for name in draw(line)], draw(st.lists(line, max_size=4))


def cells(line):
    assert line.startswith("| ")
    assert line.endswith(" |")
    return [cell.strip() for cell in line[2:-2].split(" | ")]


@given(tables())
def test_a_table_keeps_its_cells_and_shows_all_of_them_aligned(table):
    header, rows = table
    shown, rule, *lines = str(Table(header, rows)).splitlines()
    assert (Table(header, rows).header, Table(header, rows).rows) == (header, rows)
    assert [cells(line) for line in (shown, *lines)] == [header, *rows]
    assert len({len(line) for line in (shown, rule, *lines)}) == 1
    assert all(re.fullmatch("-+:?", cell) for cell in cells(rule))  # what Markdown takes for a table


def test_numbers_are_right_aligned_and_words_left():
    table = Table(["model", "loss", "±"], [["lstm", "1.5", "0.1%"], ["transformer", "11.25", ""], ["gru", "-", "1 k"]])
    assert table.is_numeric == [False, True, True]
    assert str(table).splitlines() == [
        "| model       |  loss |    ± |",
        "| ----------- | ----: | ---: |",
        "| lstm        |   1.5 | 0.1% |",
        "| transformer | 11.25 |      |",
        "| gru         |     - |  1 k |",
    ]


def test_columns_are_functions_and_can_be_chosen():
    table = Table.of([{"a": 1}, {"a": 2}], {"twice": lambda row: str(2 * row["a"]), "a": lambda row: str(row["a"])})
    assert table.rows == [["2", "1"], ["4", "2"]]
    chosen = table.select("a", "absent")
    assert (chosen.header, chosen.rows) == (["a"], [["1"], ["2"]])


def test_the_spread_is_mean_and_standard_deviation():
    assert plus_minus([2.0, 2.5, 3.0], 2) == "2.50 ± 0.50"
    assert plus_minus([2.0], 3) == "2.000"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (950, "950"),
        (0.25, "0.25"),
        (1000, "1 k"),
        (12_500, "12.5 k"),
        (1_500_000, "1.5 M"),
        (2_000_000_000, "2000 M"),
    ],
)
def test_large_numbers_on_the_axis_are_short(value, text):
    assert thousands(value) == text


@pytest.mark.parametrize(
    ("flops", "text"), [(5e8, "0.0005"), (1.234e10, "0.012"), (7.41e12, "7.41"), (2.5e15, "2,500.00")]
)
def test_operations_are_in_tera(flops, text):
    assert tera(flops) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (9.96, "10"), (1234.4, "1,234"), (999_999.0, "999,999"), (2.04e12, "2.0e+12")]
)
def test_a_perplexity_that_is_not_there_is_no_number(value, text):
    assert perplexity(value) == text


ODD = ["a b", "$(touch PWN)", "it's", 'say "x"', "a;b", "&", "ü", "a\nb", "*", "~", "#x"]


@pytest.mark.parametrize("name", ODD)
def test_a_shell_takes_each_word_as_it_is(name):
    echo = shell_command(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", name, pathlib.Path(name, name))
    done = subprocess.run(["sh", "-c", echo], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ascii([name, f"{name}/{name}"])


def test_a_path_is_no_option():
    assert shell_command("tensorboard", "--logdir", pathlib.Path("-x/now")) == "tensorboard --logdir ./-x/now"
    assert command("experiments.x", pathlib.Path("a/-x")).endswith(" -m experiments.x a/-x")


def test_the_python_that_runs_may_be_in_an_odd_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env/bin/python"))
    assert command("experiments.x") == "'my env/bin/python' -m experiments.x"
    assert command("keras-seq score", "RUN") == "'my env/bin/python' -m keras_seq score RUN"


def test_the_line_for_tensorboard_is_quoted():
    line = tensorboard_command(pathlib.Path("logs $(touch PWN)/now"))
    assert shlex.split(line)[-2:] == ["--logdir", "logs $(touch PWN)/now"]

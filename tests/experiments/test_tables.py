import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.frame.tables import Table, perplexity, plus_minus, tera, thousands

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
    assert {*rule} <= set("|-: ")


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

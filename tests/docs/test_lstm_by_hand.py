"""Every number of docs/lstm_by_hand.md is what NumPy makes of the numbers that the page begins with."""

import pathlib
import re

import numpy as np
import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "lstm_by_hand.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def parse(page):
    """The tables: {what the first one's corner says: {what a row's first cell says: its cells}}."""
    tables = {}
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        tables[head[0]] = {name: cells for name, *cells in rows}
    return tables


TABLES = parse(PAGE)


def numbers(table, row):
    return np.array([float(cell) for cell in TABLES[table][row]])


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def whole(v):
    return np.round(sigmoid(v))


def one_decimal(v):
    return np.round(np.tanh(v), 1)


def position(z, c, sigmoid, tanh):
    """The rows of the steps, in float64, with either rule of the two functions."""
    i, f, g, o = np.split(z, 4)
    kept, written = sigmoid(f) * c, sigmoid(i) * tanh(g)
    memory = kept + written
    return {
        "sigmoid(f)": {"": sigmoid(f)},
        "sigmoid(i)": {"": sigmoid(i)},
        "tanh(g)": {"": tanh(g)},
        "c'": {"kept, ": kept, "written, ": written, "": memory},
        "sigmoid(o)": {"": sigmoid(o)},
        "h'": {"tanh(c'), ": tanh(memory), "": sigmoid(o) * tanh(memory)},
    }


Z = np.array([6.0, 4, -4, -6, 1, -6, 4, -5])
C = np.array([0.3, -0.5])
WAYS = {"by hand": position(Z, C, whole, one_decimal), "exact": position(Z, C, sigmoid, np.tanh)}
STEPS = [(way, step, part) for way, steps in WAYS.items() for step, parts in steps.items() for part in parts]


def test_the_preactivations_are_those_of_the_weights():
    rows = TABLES[""]
    parts = {"x": [], "h": []}
    for name in rows:
        if match := re.fullmatch(r"([xh]) (\d) = (-?\d+)", name):
            letter, number, value = match.groups()
            parts[letter].append((float(value), numbers("", name)))
            assert int(number) == len(parts[letter])
    assert [len(part) for part in parts.values()] == [3, 2]
    x_w, h_u = (sum(value * row for value, row in part) for part in parts.values())
    np.testing.assert_array_equal(numbers("", "x W"), x_w)
    np.testing.assert_array_equal(numbers("", "h U"), h_u)
    np.testing.assert_array_equal(numbers("", "z"), x_w + h_u + numbers("", "b"))
    np.testing.assert_array_equal(numbers("", "z"), Z)
    assert len(rows) == 9


def test_the_steps_begin_with_the_parts_of_z_and_the_memory():
    for name, part in zip("ifgo", np.split(Z, 4), strict=True):
        (table,) = (corner for corner in TABLES if corner.endswith(f"({name})"))
        np.testing.assert_array_equal(numbers(table, name), part)
    np.testing.assert_array_equal(numbers("c'", "c"), C)


@pytest.mark.parametrize(("way", "step", "part"), STEPS)
def test_a_step_is_worked_out_right(way, step, part):
    got = TABLES[step][part + way]
    np.testing.assert_allclose(np.array(got, float), WAYS[way][step][part], rtol=0, atol=5.01e-7)
    for cell in got:
        assert re.fullmatch(r"-?\d\.\d{6}" if way == "exact" else r"-?\d(\.\d)?", cell)


@pytest.mark.parametrize(
    ("rounded", "rules"),
    [
        ("all rounded", (whole, one_decimal)),
        ("gates rounded", (whole, np.tanh)),
        ("tanh rounded", (sigmoid, one_decimal)),
    ],
)
def test_the_rounding_is_off_by_what_the_page_says(rounded, rules):
    off = np.abs(position(Z, C, *rules)["h'"][""] - WAYS["exact"]["h'"][""])
    np.testing.assert_allclose(numbers("h' is off by", rounded), off, rtol=0, atol=5.01e-7)


def test_no_number_of_a_table_is_left_out():
    beside = (
        {("", name) for name in TABLES[""]} | {("c'", "c")} | {("h' is off by", row) for row in TABLES["h' is off by"]}
    )
    beside |= {(corner, corner[-2]) for corner in TABLES if re.fullmatch(r"\w+\(\w\)", corner)}
    checked = beside | {(step, part + way) for way, step, part in STEPS}
    assert checked == {(corner, row) for corner, rows in TABLES.items() for row in rows}


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example):
    exec(compile(example, "docs/lstm_by_hand.md", "exec"), {})


def test_the_example_has_the_numbers_of_the_page():
    names = {}
    exec(compile(EXAMPLES[0], "docs/lstm_by_hand.md", "exec"), names)
    weights = [*names["kernel"], *names["recurrent_kernel"], names["bias"]]
    rows = [row for name, row in TABLES[""].items() if "=" in name or name == "b"]
    np.testing.assert_array_equal(weights, np.array(rows, float))
    assert [f"x {n + 1} = {value:g}" for n, value in enumerate(names["x"][0, 0])] == [
        r for r in TABLES[""] if "x " in r and "=" in r
    ]

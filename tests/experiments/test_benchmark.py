import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from experiments import benchmark, benchmark_keras, benchmark_report
from experiments.benchmark_rows import ROWS, TINY, Row, growth, size
from experiments.benchmark_turns import in_turns, ratio


def test_the_ratio_is_taken_turn_by_turn():
    summaries = {"ours": {"runs": [2.0, 8.0, 3.0]}, "keras": {"runs": [1.0, 2.0, 3.0]}}
    assert ratio(summaries, "keras") == 2.0  # of 2, 4 and 1; the ratio of the medians is 1.5
    assert ratio(summaries, "torch") is None


@pytest.mark.parametrize("ladder", growth())
def test_a_ladder_changes_one_size(ladder):
    rows = growth()[ladder]
    sizes = [size(row, ladder) for row in rows]
    assert sizes == sorted(set(sizes))
    field = next(f.name for f in dataclasses.fields(Row) if len({getattr(row, f.name) for row in rows}) > 1)
    assert len({dataclasses.replace(row, **{field: 1}) for row in rows}) == 1


def test_the_rows_are_those_that_speed_is_asked_of():
    assert len(ROWS) == 10
    assert all(row.torch_target and row.keras_target for row in ROWS)
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [row.name for row in ROWS if "bfloat16" in row.name] == [r.name for r in ROWS if r.precision == "bfloat16"]


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_both_sides_have_the_same_parameters(kind):
    row = Row("small", kind, 2, 6, 8, units=5, num_heads=2, num_layers=2)
    ours, theirs = benchmark_keras.ours(row, 5), benchmark_keras.keras_as_it_comes(row)
    assert ours.count_params() == theirs.count_params()
    ids = np.zeros((2, 6), "int32")
    assert ours(ids).shape == theirs(ids).shape == (2, 6, 65)


def test_attention_is_the_same_function_on_both_sides():
    row = Row("small", "attention", 1, 7, 8, num_heads=2)
    tf.random.set_seed(0)
    ours, *_ = benchmark_keras.attention_step(row, "ours")
    tf.random.set_seed(0)
    theirs, *_ = benchmark_keras.attention_step(row, "keras")
    np.testing.assert_allclose(ours(1), theirs(1), rtol=1e-4, atol=1e-6)


def test_the_matmul_speed_is_that_of_a_matmul():
    assert 1e8 < benchmark.matmul_flops("float32", 256) < 1e14


@pytest.mark.parametrize(
    ("option", "named"),
    [(("--rows", 11), "--rows 11"), (("--runs", 0), "--runs 0"), (("--resume", "x"), "--resume x")],
)
def test_a_mistake_is_one_sentence(fails, tmp_path, option, named):
    assert named in fails(benchmark.main, *option, "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_tiny_run_leaves_its_report(python, tmp_path):
    done = python("-m", "experiments.benchmark", "--smoke", "--growth", "--log-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "benchmark").iterdir()
    found = json.loads((folder / "benchmark.json").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in found["rows"]] == [row.name for row in TINY]
    for entry in found["rows"]:
        assert entry["speedup_vs_keras"] > 0
        assert all(len(way["runs"]) == 2 and way["peak_megabytes"] > 10 for way in entry["measured"].values())
    report = (folder / "benchmark.md").read_text(encoding="utf-8")
    assert benchmark_report.table(found["rows"]) in report
    assert benchmark_report.table(found["rows"]) in done.stdout


@pytest.mark.slow
def test_a_worker_that_fails_is_said_to():
    with pytest.raises(RuntimeError, match="ended with status 1"):
        in_turns(Row("none", "transformer", 1, 4, 7, num_heads=2), ("ours",), 1, 0.01)

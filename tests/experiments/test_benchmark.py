import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from experiments.benchmark import __main__ as benchmark
from experiments.benchmark import keras_worker as benchmark_keras
from experiments.benchmark import report as benchmark_report
from experiments.benchmark.cases import CASES, SMOKE_CASES, Case, size, size_sweep
from experiments.benchmark.workers import run_interleaved, speedup


def test_the_speedup_is_the_median_of_the_ratios_of_the_rounds():
    measurements = {"keras_seq": {"repeats": [2.0, 8.0, 3.0]}, "keras": {"repeats": [1.0, 2.0, 3.0]}}
    assert speedup(measurements, "keras") == 2.0  # of 2, 4 and 1; the ratio of the medians is 1.5
    assert speedup(measurements, "torch") is None


@pytest.mark.parametrize("sweep", size_sweep())
def test_a_sweep_changes_one_size(sweep):
    cases = size_sweep()[sweep]
    sizes = [size(case, sweep) for case in cases]
    assert sizes == sorted(set(sizes))
    field = next(f.name for f in dataclasses.fields(Case) if len({getattr(case, f.name) for case in cases}) > 1)
    assert len({dataclasses.replace(case, **{field: 1}) for case in cases}) == 1


def test_every_case_has_targets_and_a_unique_name():
    assert len(CASES) == 10
    assert all(case.torch_target and case.keras_target for case in CASES)
    assert len({case.name for case in CASES}) == len(CASES)
    bfloat16 = [case.name for case in CASES if case.precision == "bfloat16"]
    assert [case.name for case in CASES if "bfloat16" in case.name] == bfloat16


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_both_sides_have_the_same_parameters(kind):
    case = Case("small", kind, 2, 6, 8, units=5, num_heads=2, num_layers=2)
    model, reference = benchmark_keras.keras_seq_model(case, 5), benchmark_keras.keras_reference_model(case)
    assert model.count_params() == reference.count_params()
    ids = np.zeros((2, 6), "int32")
    assert model(ids).shape == reference(ids).shape == (2, 6, 65)


def test_attention_is_the_same_function_on_both_sides():
    case = Case("small", "attention", 1, 7, 8, num_heads=2)
    tf.random.set_seed(0)
    run_steps, *_ = benchmark_keras.attention_step(case, "keras_seq")
    tf.random.set_seed(0)
    run_reference, *_ = benchmark_keras.attention_step(case, "keras")
    np.testing.assert_allclose(run_steps(1), run_reference(1), rtol=1e-4, atol=1e-6)


def test_the_matmul_speed_is_that_of_a_matmul():
    assert 1e8 < benchmark.matmul_flops("float32", 256) < 1e14


@pytest.mark.parametrize(
    ("option", "named"),
    [(("--cases", 11), "--cases 11"), (("--repeats", 0), "--repeats 0"), (("--resume", "x"), "--resume x")],
)
def test_a_mistake_is_one_sentence(fails, tmp_path, option, named):
    assert named in fails(benchmark.main, *option, "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_tiny_run_leaves_its_report(python, tmp_path):
    process = python("-m", "experiments.benchmark", "--smoke", "--size-sweep", "--log-dir", tmp_path)
    assert process.returncode == 0, process.stderr
    (folder,) = (tmp_path / "benchmark").iterdir()
    results = json.loads((folder / "benchmark.json").read_text(encoding="utf-8"))
    assert [result["name"] for result in results["cases"]] == [case.name for case in SMOKE_CASES]
    for result in results["cases"]:
        assert result["speedup_vs_keras"] > 0
        assert all(len(m["repeats"]) == 2 and m["peak_megabytes"] > 10 for m in result["measurements"].values())
    assert len(results["size_sweep"]) == 1
    report = (folder / "benchmark.md").read_text(encoding="utf-8")
    assert benchmark_report.table(results["cases"]) in report
    assert benchmark_report.table(results["cases"]) in process.stdout


@pytest.mark.slow
def test_a_worker_that_fails_is_said_to():
    with pytest.raises(RuntimeError, match="ended with exit status 1"):
        run_interleaved(Case("none", "transformer", 1, 4, 7, num_heads=2), ("keras_seq",), 1, 0.01)

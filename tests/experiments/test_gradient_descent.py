import json
import types

import keras
import matplotlib.image
import numpy as np
import pytest

from experiments.frame.runs import dataclass_from_dict
from experiments.gradient_descent import __main__ as gradient_descent


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    process = python("-m", "experiments.gradient_descent", "--smoke", "--log-dir", logs)
    assert process.returncode == 0, process.stderr
    (folder,) = (logs / "gradient_descent").iterdir()
    rows = json.loads((folder / "gradient_descent.json").read_text(encoding="utf-8"))
    return types.SimpleNamespace(folder=folder, rows={row["method"]: row for row in rows}, process=process)


@pytest.fixture(scope="module")
def problem():
    return gradient_descent.Problem(num_examples=240, num_features=4, seed=0)


def curve(run, name):
    return gradient_descent.curve(run.folder / f"{name}-seed0", num_examples=240)


def test_the_gradient_is_that_of_the_loss(problem):
    w, step = np.array([0.3, -0.2, 0.5, 0.1]), 1e-6
    slopes = [(problem.loss(w + step * e) - problem.loss(w - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(problem.gradient(w), slopes, atol=1e-8)


def test_nothing_is_below_the_optimum(problem):
    lowest = problem.loss(problem.optimum)
    np.testing.assert_allclose(problem.gradient(problem.optimum), 0, atol=1e-11)
    for direction in np.random.default_rng(0).normal(size=(20, 4)):
        assert problem.loss(problem.optimum + 0.01 * direction) > lowest


def test_nowhere_is_it_curved_more_than_said(problem):
    for w in np.random.default_rng(1).normal(size=(20, 4)):
        for direction in np.eye(4):
            second = direction @ (problem.gradient(w + 1e-5 * direction) - problem.gradient(w)) / 1e-5
            assert second <= problem.curvature + 1e-6


def test_full_batches_go_down_and_keep_below_their_bound(run, problem):
    epochs, suboptimality = np.array(curve(run, "full")).T
    np.testing.assert_array_equal(epochs, [2, 4, 6, 8, 10])
    assert (np.diff(suboptimality) < 0).all()
    assert (suboptimality > 0).all()
    assert (suboptimality <= problem.curvature * np.sum(problem.optimum**2) / (2 * epochs)).all()


def test_full_batches_are_gradient_descent(run, problem):
    w = np.zeros(4)
    for _ in range(10):
        w -= problem.gradient(w) / problem.curvature
    model = keras.models.load_model(run.folder / "full-seed0/model.keras")
    np.testing.assert_allclose(model.get_weights()[0][:, 0], w, atol=1e-5)
    assert run.rows["full"]["val_loss"] == pytest.approx(problem.loss(w), abs=1e-6)


def test_all_compute_the_same_number_of_gradients(run):
    assert list(run.rows) == list(gradient_descent.METHODS)
    for name, row in run.rows.items():
        assert row["steps"] * row["batch_size"] == 2400
        assert curve(run, name)[-1] == (10, row["suboptimality"])


def test_small_batches_are_ahead_after_two_epochs(run):
    assert curve(run, "stochastic")[0][1] < 0.5 * curve(run, "full")[0][1]


def test_the_report_has_every_method_and_the_plot(run):
    report = (run.folder / "gradient_descent.md").read_text(encoding="utf-8")
    for name in gradient_descent.METHODS:
        (row,) = (line for line in run.process.stdout.splitlines() if line.startswith(f"| {name} "))
        assert row in report
    height, width, _ = matplotlib.image.imread(run.folder / "gradient_descent.png").shape
    assert width > height > 400
    assert "tensorboard --logdir" in run.process.stdout.splitlines()[-2] + run.process.stdout.splitlines()[-1]
    assert run.process.stderr == ""


def test_a_run_can_be_made_again_from_its_config_and_a_finished_one_is_not(run, capsys):
    config = json.loads((run.folder / "full-seed0/config.json").read_text(encoding="utf-8"))
    assert dataclass_from_dict(gradient_descent.GradientDescentConfig, config["experiment"]).num_examples == 240
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-seed0/*")}
    gradient_descent.main(["--resume", str(run.folder)])
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-seed0/*")} == before
    assert "| full-momentum " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--num-examples 399", "--num-examples 399"),
        ("--num-features 0", "--num-features 0"),
        ("--batch-size 0", "--batch-size 0"),
        ("--batch-size 15", "--batch-size 15"),
        ("--epochs 0", "--epochs 0"),
        ("--epochs 5", "--epochs 5"),
        ("--seed -1", "--seed -1"),
        ("--frobnicate 1", "--frobnicate"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    sentence = fails(gradient_descent.main, *arguments.split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.gradient_descent: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()

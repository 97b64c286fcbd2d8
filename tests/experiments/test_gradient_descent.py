import keras
import numpy as np
import pytest

from experiments.gradient_descent import METHODS, Problem, suboptimality, verdict


@pytest.fixture(scope="module")
def problem():
    """That of the smoke run."""
    return Problem(num_examples=240, num_features=4, seed=0)


def curve(smoke, name):
    return suboptimality(smoke.folder / f"{name}-seed0", num_examples=240)


def test_the_gradient_is_that_of_the_loss(problem):
    w, step = np.array([0.3, -0.2, 0.5, 0.1]), 1e-6
    slopes = [(problem.loss(w + step * e) - problem.loss(w - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(problem.gradient(w), slopes, atol=1e-8)


def test_nothing_is_below_the_optimum(problem):
    np.testing.assert_allclose(problem.gradient(problem.optimum), 0, atol=1e-11)
    for direction in np.random.default_rng(0).normal(size=(20, 4)):
        assert problem.loss(problem.optimum + 0.01 * direction) > problem.lowest_loss


def test_nowhere_is_it_curved_more_than_said(problem):
    for w in np.random.default_rng(1).normal(size=(20, 4)):
        for direction in np.eye(4):
            second = direction @ (problem.gradient(w + 1e-5 * direction) - problem.gradient(w)) / 1e-5
            assert second <= problem.curvature + 1e-6


def test_full_batches_go_down_and_keep_below_their_bound(smoke, problem):
    points = curve(smoke, "full")
    epochs, values = np.array([*points]), np.array([*points.values()])
    np.testing.assert_array_equal(epochs, [2, 4, 6, 8, 10])
    assert (np.diff(values) < 0).all()
    assert (values > 0).all()
    assert (values <= problem.curvature * np.sum(problem.optimum**2) / (2 * epochs)).all()


def test_full_batches_are_gradient_descent(smoke, problem):
    w = np.zeros(4)
    for _ in range(10):
        w -= problem.gradient(w) / problem.curvature
    model = keras.models.load_model(smoke.folder / "full-seed0/model.keras")
    np.testing.assert_allclose(model.get_weights()[0][:, 0], w, atol=1e-5)
    assert smoke.rows[0]["val_loss"] == pytest.approx(problem.loss(w), abs=1e-6)


def test_all_compute_the_same_number_of_gradients(smoke):
    assert [row["method"] for row in smoke.rows] == [*METHODS]
    for row in smoke.rows:
        assert row["steps"] * row["batch_size"] == row["train_tokens"] == 2400
        assert curve(smoke, row["method"])[10] == row["suboptimality"]


def test_small_batches_are_ahead_after_two_epochs(smoke):
    assert curve(smoke, "stochastic")[2] < 0.5 * curve(smoke, "full")[2]


def test_the_report_names_the_problem_as_the_rows_imply_it(smoke, problem):
    assert f"the lowest loss of {problem.lowest_loss:.6f}" in smoke.report
    assert f"L = {problem.curvature:.4f}" in smoke.report


def test_the_verdict_names_the_nearest_early_and_late():
    curves = {"full": {2: 0.1, 10: 1e-6}, "stochastic": {2: 0.01, 10: 0.005}}
    early, late = verdict(curves, (2, 10)).split(";")
    assert "stochastic after 2 epochs, 1.0e-02" in early
    assert "full after 10 epochs, 1.0e-06" in late

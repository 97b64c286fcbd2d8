import keras
import numpy as np
import pytest

from keras_seq.training import InverseSqrtDecay, WarmupLinearDecay


def oracle(step, peak, total, warmup, final):
    """Two straight lines, by interpolation between their corners."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return float(np.interp(step, [warmup, max(total, warmup + 1)], [peak, final * peak]))


@pytest.mark.parametrize(
    ("total", "warmup", "final"), [(20, 5, 0.1), (20, 0, 0.0), (7, 7, 0.5), (1, 0, 0.02), (3, 9, 0)]
)
def test_it_rises_and_falls_in_straight_lines(total, warmup, final):
    schedule = WarmupLinearDecay(0.3, total, warmup, final)
    steps = range(total + 3)
    expected = [oracle(step, 0.3, total, warmup, final) for step in steps]
    np.testing.assert_allclose([schedule(step) for step in steps], expected, rtol=1e-6, atol=1e-9)
    tensors = [schedule(keras.Variable(step, dtype="int32")) for step in steps]
    np.testing.assert_allclose([float(rate) for rate in tensors], expected, rtol=1e-6, atol=1e-9)


def test_it_never_starts_at_zero_and_reaches_its_peak_and_its_end():
    schedule = WarmupLinearDecay(2.0, total_steps=100, warmup_steps=10, final_lr_fraction=0.25)
    rates = [float(schedule(step)) for step in range(101)]
    assert rates[0] > 0
    assert max(rates) == rates[9] == pytest.approx(2.0)
    assert rates[100] == pytest.approx(0.5)


def test_an_optimizer_reads_it_at_its_own_step():
    optimizer = keras.optimizers.SGD(WarmupLinearDecay(1.0, total_steps=4, warmup_steps=2))
    weight = keras.Variable([0.0])
    moves = []
    for _ in range(4):
        before = float(weight[0])
        optimizer.apply([np.ones(1, "float32")], [weight])
        moves.append(before - float(weight[0]))
    np.testing.assert_allclose(moves, [0.5, 1.0, 1.0, 0.5], rtol=1e-6)


def test_it_comes_back_from_its_config():
    schedule = WarmupLinearDecay(0.3, total_steps=20, warmup_steps=5, final_lr_fraction=0.1)
    serialize, revive = keras.optimizers.schedules.serialize, keras.optimizers.schedules.deserialize
    assert vars(revive(serialize(schedule))) == vars(schedule)


@pytest.mark.parametrize(("embedding_dim", "warmup", "factor"), [(512, 4000, 1.0), (16, 5, 2.5), (8, 1, 1.0)])
def test_the_inverse_square_root_is_the_papers_formula_with_steps_from_one(embedding_dim, warmup, factor):
    schedule = InverseSqrtDecay(embedding_dim, warmup, factor)
    steps = [0, 1, 2, warmup - 1, warmup, 3 * warmup, 100 * warmup]
    expected = [factor * embedding_dim**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5) for step in steps]
    np.testing.assert_allclose([float(schedule(step)) for step in steps], expected, rtol=1e-5)


def test_the_inverse_square_root_rises_to_its_peak_at_the_end_of_the_warmup_and_falls():
    schedule = InverseSqrtDecay(64, warmup_steps=10, factor=3.0)
    rates = [float(schedule(step)) for step in range(41)]
    assert int(np.argmax(rates)) == 9
    assert max(rates) == pytest.approx(3.0 / (64 * 10) ** 0.5)
    np.testing.assert_allclose(np.diff(rates[:10]), rates[0], rtol=1e-4)  # a straight line from zero
    assert rates[39] == pytest.approx(rates[9] / 2)  # four times as many steps
    assert (np.diff(rates[9:]) < 0).all()


def test_an_optimizer_reads_the_inverse_square_root_from_its_first_step():
    optimizer = keras.optimizers.SGD(InverseSqrtDecay(4, warmup_steps=2))
    weight, moves = keras.Variable([0.0]), []
    for _ in range(3):
        before = float(weight[0])
        optimizer.apply([np.ones(1, "float32")], [weight])
        moves.append(before - float(weight[0]))
    np.testing.assert_allclose(moves, [0.5 / 8**0.5, 0.5 / 2**0.5, 0.5 / 3**0.5], rtol=1e-5)


def test_the_inverse_square_root_comes_back_from_its_config():
    schedule = InverseSqrtDecay(64, warmup_steps=10, factor=3.0)
    serialize, revive = keras.optimizers.schedules.serialize, keras.optimizers.schedules.deserialize
    assert vars(revive(serialize(schedule))) == vars(schedule)


@pytest.mark.parametrize(
    "options", [{"embedding_dim": 0}, {"embedding_dim": 8, "warmup_steps": 0}, {"embedding_dim": 8, "factor": 0}]
)
def test_an_argument_of_the_inverse_square_root_out_of_its_range_is_refused_by_name(options):
    name, value = list(options.items())[-1]
    with pytest.raises(ValueError, match=f"{name}={value}; expected"):
        InverseSqrtDecay(**options)

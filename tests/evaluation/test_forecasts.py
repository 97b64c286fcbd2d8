"""Losses of forecasts against their definitions, scipy and Keras's fit."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special, stats

from keras_seq import layers
from keras_seq.evaluation import QuantileLoss, StudentTLoss
from keras_seq.evaluation.forecasts import _log_gamma_ratio, quantile_score
from tests.layers.conftest import compiled

numpy = ops.convert_to_numpy
B, T, H, LEVELS = 3, 4, 2, (0.1, 0.5, 0.8)
LOSSES = [QuantileLoss(LEVELS, horizon=H), StudentTLoss(horizon=H)]
each = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def softplus(z):
    return np.logaddexp(0, z)


def inverse_softplus(y):
    return y + np.log(-np.expm1(-y))


def drawn(loss, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(B, T, H), scale=2), random.normal(size=(B, T, loss.num_outputs), scale=2)


def definition(loss, values, outputs):
    """The losses `[B, T, H]` in float64, value by value."""
    z = outputs.reshape(*values.shape, -1)
    if isinstance(loss, StudentTLoss):
        return -stats.t.logpdf(values, 2 + softplus(z[..., 2]), z[..., 0], softplus(z[..., 1]))
    normal = stats.norm.ppf(LEVELS)
    q = [normal[0] + z[..., 0]]
    for n in range(1, len(LEVELS)):
        q.append(q[-1] + softplus(z[..., n] + inverse_softplus(normal[n] - normal[n - 1])))
    losses = [
        np.where(values >= one, p * (values - one), (1 - p) * (one - values)) for p, one in zip(LEVELS, q, strict=True)
    ]
    return np.mean(losses, axis=0)


@each
def test_each_loss_is_its_definition(loss):
    values, outputs = drawn(loss)
    np.testing.assert_allclose(
        numpy(loss.call(values, outputs)), definition(loss, values, outputs), rtol=2e-5, atol=2e-6
    )
    assert float(loss(values, outputs)) == pytest.approx(definition(loss, values, outputs).mean(), rel=1e-5)


@pytest.mark.parametrize("a", [1.0, 1.3, 2.0, 7.5, 1e3, 1e6])
def test_the_ratio_of_gamma_functions_is_exact_where_their_logarithms_are_large(a):
    assert float(_log_gamma_ratio(ops.array(a, "float32"))) == pytest.approx(
        float(special.gammaln(a + 0.5) - special.gammaln(a)) if a < 1e5 else 0.5 * np.log(a) - 1 / (8 * a),
        rel=2e-6,
        abs=1e-6,
    )


@each
def test_quantiles_never_cross_and_have_their_share_of_the_values(loss):
    _, outputs = drawn(loss)
    quantiles = numpy(
        loss.quantiles(10 * outputs.astype("float32")) if loss is LOSSES[0] else loss.quantiles(outputs, LEVELS)
    )
    assert quantiles.shape == (B, T, H, len(LEVELS))
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    if isinstance(loss, StudentTLoss):
        draws = loss.sample(np.tile(outputs, (2000, 1, 1)), np.random.default_rng(0)).reshape(2000, B, T, H)
        share = (draws[..., None] <= quantiles).mean(axis=(0, 1, 2, 3))
        np.testing.assert_allclose(share, LEVELS, atol=0.01)


def test_outputs_of_zero_are_the_quantiles_of_a_standard_normal_distribution():
    np.testing.assert_allclose(numpy(LOSSES[0].quantiles(np.zeros((1, 6))))[0, 1], stats.norm.ppf(LEVELS), atol=1e-6)


@pytest.mark.parametrize("loss", [QuantileLoss((0.1, 0.5, 0.9)), StudentTLoss()], ids=lambda loss: loss.name)
def test_the_lowest_loss_is_that_of_the_true_distribution(loss):
    """Proper: any other quantile, location, scale or degrees of freedom costs more on many values."""
    values = stats.t.rvs(5, loc=1, scale=2, size=200_000, random_state=np.random.default_rng(0))[:, None]

    if isinstance(loss, StudentTLoss):
        best = np.array([1, inverse_softplus(2), inverse_softplus(3)])
    else:
        low, middle, high = stats.t.ppf(loss.levels, 5, 1, 2)
        normal = stats.norm.ppf(0.9)
        gaps = inverse_softplus(np.array([middle - low, high - middle])) - inverse_softplus(normal)
        best = np.array([low + normal, *gaps])
    lowest = float(loss(values, np.tile(best, (len(values), 1))))
    for n in range(3):
        for change in (-0.3, 0.3):
            assert float(loss(values, np.tile(best + change * np.eye(3)[n], (len(values), 1)))) > lowest


@each
def test_padding_missing_values_and_weights_count_as_if_they_were_not_there(loss):
    values, outputs = drawn(loss)
    expected = definition(loss, values, outputs)
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], bool)
    missing = np.zeros_like(values, bool)
    missing[1, 2, 0] = missing[0, 0] = True
    counts = mask[..., None] & ~missing
    spoiled = np.where(mask[..., None], outputs, np.nan).astype("float32")
    given = keras.layers.Masking()  # a mask on the outputs, as a layer leaves it
    given_outputs = given(np.where(mask[..., None], outputs, 0).astype("float32"))
    got = loss(np.where(missing, np.nan, values), given_outputs)
    assert float(got) == pytest.approx(expected[counts].mean(), rel=1e-5)
    weights = np.where(counts, np.arange(1.0, 4.0)[:, None, None], 0)
    got = loss(np.where(counts, values, np.nan), spoiled, np.arange(1.0, 4.0))
    assert float(got) == pytest.approx((expected * weights).sum() / weights.sum(), rel=1e-5)
    one_by_one = type(loss).from_config({**loss.get_config(), "reduction": "none"})
    np.testing.assert_allclose(
        numpy(one_by_one(np.where(counts, values, np.nan), spoiled)),
        np.where(counts, expected, 0),
        rtol=2e-5,
        atol=2e-6,
    )
    total = type(loss).from_config({**loss.get_config(), "reduction": "sum"})
    assert float(total(values, outputs)) == pytest.approx(expected.sum(), rel=1e-5)
    assert float(loss(np.full_like(values, np.nan), outputs)) == 0


@each
def test_a_model_learns_from_keras_timeseries_with_values_missing_and_is_saved(loss, tmp_path):
    """Any layer for sequences, a Dense head, `fit`, whose windows `keras.utils` cuts; JAX and torch take them too."""
    pytest.importorskip("tensorflow")
    keras.utils.set_random_seed(0)
    series = np.sin(np.arange(400) / 3).astype("float32")
    targets = np.stack([series[n : n + 380] for n in (9, 10)], axis=-1)[:, None]  # after each window of 9
    targets[5, 0, 1] = np.nan
    data = keras.utils.timeseries_dataset_from_array(series[:388, None], targets, sequence_length=9, batch_size=32)
    model = keras.Sequential(
        [keras.Input((9, 1)), layers.GRU(8), keras.layers.Reshape((1, 8)), layers.Dense(loss.num_outputs)]
    )
    model.compile(keras.optimizers.Adam(0.02), loss, jit_compile=False)
    history = model.fit(data, epochs=4, shuffle=False, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    assert history[-1] < history[0] - 0.1
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.loss.get_config() == loss.get_config()
    assert again.evaluate(data, verbose=0) == pytest.approx(model.evaluate(data, verbose=0), rel=1e-5)


@each
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_outputs_are_scored_in_float32_compiled_too(loss, dtype):
    values, outputs = drawn(loss)
    half = ops.cast(outputs, dtype)
    got = compiled(lambda z: loss(values, z))(half)
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
    assert float(got) == pytest.approx(float(loss(values, ops.cast(half, "float32"))), rel=1e-5)


def test_the_quantile_score_of_many_levels_is_the_crps():
    """CRPS of a normal distribution: sigma (x (2 F(x) - 1) + 2 f(x) - 1 / sqrt(pi)), x in deviations."""
    levels = (np.arange(2000) + 0.5) / 2000
    x = np.array([-1.0, 0.3, 2.0])
    crps = 2 * (x * (2 * stats.norm.cdf(x) - 1) + 2 * stats.norm.pdf(x) - np.pi**-0.5)
    quantiles = np.tile(2 * stats.norm.ppf(levels), (3, 1))
    np.testing.assert_allclose(quantile_score(2 * x, quantiles, levels), crps, rtol=1e-3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: QuantileLoss((0.5, 0.2)), r"levels=\(0.5, 0.2\); expected numbers between 0 and 1 in ascending order"),
        (lambda: QuantileLoss(()), "levels=()"),
        (lambda: QuantileLoss((0.0, 0.5)), "levels="),
        (lambda: StudentTLoss(0), "horizon=0"),
        (lambda: StudentTLoss(reduction="mean"), "reduction='mean'"),
        (lambda: StudentTLoss(2)(np.zeros((1, 3, 1)), np.zeros((1, 3, 6))), r"y_true has shape \(1, 3, 1\)"),
        (lambda: StudentTLoss(2)(np.zeros((1, 3, 2)), np.zeros((1, 3, 3))), r"\[..., 6\]: end the model with Dense"),
    ],
)
def test_a_mistake_is_named(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_one_level_may_be_a_number():
    np.testing.assert_array_equal(StudentTLoss(1).quantiles([[0.0, 0.0, 0.0]], 0.5), [[[0.0]]])


def test_levels_are_no_percents_and_as_many_as_quantiles():
    values, quantiles = np.zeros(3), np.zeros((3, 2))
    with pytest.raises(ValueError, match="levels=5; expected a number from 0 to 1"):
        quantile_score(values, quantiles, (5, 95))
    with pytest.raises(ValueError, match=r"quantiles of shape \(3, 2\); expected 3"):
        quantile_score(values, quantiles, (0.1, 0.5, 0.9))
    with pytest.raises(ValueError, match="levels=5"):
        StudentTLoss().quantiles(np.zeros((1, 3), "float32"), (5, 95))
    assert QuantileLoss(np.linspace(0.1, 0.9, 9)).outputs_per_value == 9
    with pytest.raises(ValueError, match="expected numbers between 0 and 1"):
        QuantileLoss(())

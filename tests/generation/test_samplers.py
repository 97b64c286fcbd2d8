import numpy as np
import pytest
from keras import ops

from keras_seq.generation import LOGIT_FILTERS, SamplingConfig, sample_token
from keras_seq.generation.samplers import repetition_penalty
from keras_seq.random_draws import uniform_draws
from tests.generation.sampling_oracle import sample

pytestmark = pytest.mark.any_backend
LOGITS = np.array([2.0, -1.0, 0.5, 1.0, 0.0, -3.0])
P = np.exp(LOGITS) / np.exp(LOGITS).sum()  # 0.57 0.03 0.13 0.21 0.08 0.004, likeliest first: 0 3 2 4 1 5
CRITICAL = {5: 25.7, 4: 23.5, 3: 21.1, 2: 18.4, 1: 15.1}  # chi-square by degrees of freedom: 1 in 10,000 lies above


def ids(logits, count=1, seed=0, **options):
    """As many draws from the same logits."""
    return sampled(np.tile(logits, (count, 1)).astype("float32"), uniform_draws(seed, 1, count), **options)


def sampled(logits, uniform, **options):
    """One draw for each row of logits."""
    options = {name: np.array(value, "float32") for name, value in options.items()}
    return ops.convert_to_numpy(sample_token(ops.convert_to_tensor(logits), ops.convert_to_tensor(uniform), options))


def without(p, dropped):
    """The distribution when some ids are left out."""
    kept = np.array([0 if n in dropped else value for n, value in enumerate(p)])
    return kept / kept.sum()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, P),
        ({"temperature": 1.0}, P),
        ({"temperature": 0.6}, P ** (1 / 0.6) / (P ** (1 / 0.6)).sum()),
        ({"temperature": 1.7, "top_k": 3}, without(P ** (1 / 1.7), {4, 1, 5})),
        ({"top_k": 9}, P),
        ({"top_k": 2**31 - 1}, P),
        ({"top_p": 1.0}, P),
        ({"top_p": 0.8}, without(P, {4, 1, 5})),  # 0.57 + 0.21 = 0.78 is too little
        ({"top_p": 0.75}, without(P, {2, 4, 1, 5})),
        ({"min_p": 0.1}, without(P, {1, 5})),
        ({"min_p": 0.2}, without(P, {4, 1, 5})),
        ({"typical_p": 1.0}, P),
        ({"typical_p": 0.5}, without(P, {2, 4, 1, 5})),
        ({"top_k": 4, "min_p": 0.2}, without(P, {4, 1, 5})),
    ],
)
def test_ids_are_drawn_as_often_as_the_formula_says(options, expected):
    count = 20_000
    observed = np.bincount(ids(LOGITS, count, seed=3, **options), minlength=len(expected))
    assert (observed[expected == 0] == 0).all()
    possible = expected > 0
    expected = expected[possible] * count
    assert ((observed[possible] - expected) ** 2 / expected).sum() < CRITICAL[possible.sum() - 1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.7, "top_k": 5},
        {"temperature": 1.3, "top_p": 0.8},
        {"top_k": 9, "top_p": 0.9, "min_p": 0.02},
        {"temperature": 1.5, "typical_p": 0.6},
        {"top_p": 0.95, "typical_p": 0.7},
    ],
)
def test_every_draw_is_that_of_the_formulas_in_float64(options):
    logits = np.random.default_rng(6).normal(scale=2.0, size=(300, 13)).astype("float32")
    uniform = uniform_draws(7, 0, 300)
    expected = [sample(row, u, **options) for row, u in zip(logits, uniform, strict=True)]
    np.testing.assert_array_equal(sampled(logits, uniform, **options), expected)
    assert len({*expected}) == 13


def test_temperature_zero_and_one_candidate_take_the_likeliest():
    logits = np.random.default_rng(1).normal(size=(50, 7)).astype("float32")
    uniform = uniform_draws(1, 2, 50)
    for options in ({"temperature": 0.0}, {"temperature": 0.0, "top_k": 3.0}, {"temperature": 5.0, "top_k": 1.0}):
        np.testing.assert_array_equal(sampled(logits, uniform, **options), logits.argmax(-1))


def test_of_equal_ones_exactly_k_stay_the_first_ones():
    logits = np.array([1.0, 2.0, 1.0, 2.0, 1.0])
    kept = {k: {*ids(logits, 500, top_k=k)} for k in (1, 2, 3, 5, 9)}
    assert kept == {1: {1}, 2: {1, 3}, 3: {0, 1, 3}, 5: {0, 1, 2, 3, 4}, 9: {0, 1, 2, 3, 4}}


@pytest.mark.parametrize("shift", [-50.0, 50.0])
def test_the_smallest_temperatures_overflow_to_the_likeliest(shift):
    logits = np.array([-2.0, -1.0, -3.0]) + shift
    for temperature in (1e-10, 1e-30, 1e-38):
        assert {*ids(logits, 20, temperature=temperature)} == {1}


def test_the_highest_chance_is_still_an_id_that_stays():
    drawn = sampled(np.array([[3.0, 2.0, 1.0, -50.0]], "float32"), np.array([1 - 2**-23], "float32"), top_k=2)
    assert drawn.tolist() == [1]


def test_the_penalty_makes_ids_of_the_text_less_likely_whatever_their_sign():
    logits, in_text = np.array([[2.0, -2.0, 2.0, -2.0]], "float32"), np.array([[True, True, False, False]])
    np.testing.assert_allclose(
        ops.convert_to_numpy(repetition_penalty(ops.convert_to_tensor(logits), in_text, 2.0)), [[1.0, -4.0, 2.0, -2.0]]
    )


def test_a_penalty_leaves_what_is_finite_finite_and_what_is_excluded_excluded():
    logits, in_text = np.array([[-2.0, 8.0, -np.inf, 1.0]], "float32"), np.array([[True, True, True, False]])
    for penalty in (3e38, 1.2e-38):
        found = ops.convert_to_numpy(repetition_penalty(ops.convert_to_tensor(logits), in_text, penalty))
        assert np.isfinite(found).tolist() == [[True, True, False, True]]


def test_half_precision_is_drawn_from_in_float32():
    logits = ops.cast(np.tile(LOGITS, (4, 1)), "bfloat16")
    assert sampled(logits, np.array([0.0, 0.5, 0.7, 0.999], "float32")).tolist() == [0, 0, 3, 5]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_minus_one(value):
    rows = np.array([[0.0, value, 0.0], [-np.inf, -np.inf, -np.inf], [-np.inf, 1.0, -np.inf]], "float32")
    assert sampled(rows, np.array([0.5, 0.5, 0.5], "float32")).tolist() == [-1, -1, 1]


def test_the_filters_are_those_of_the_sampling_config():
    assert {*SamplingConfig.__dataclass_fields__} == {*LOGIT_FILTERS, "repetition_penalty"}
    assert SamplingConfig(top_k=3).options == {"temperature": 1.0, "top_k": 3.0}


def test_a_filter_that_there_is_not_is_named():
    with pytest.raises(ValueError, match="There is no filter 'topk'; expected some of temperature, top_k"):
        sample_token(np.zeros((1, 3), "float32"), np.zeros(1, "float32"), {"topk": 5})

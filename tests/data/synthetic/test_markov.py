import dataclasses
import itertools
import math

import numpy as np
import pytest

from keras_seq.data.synthetic import MarkovChain

CHAIN = MarkovChain(vocabulary_size=3, order=2, seed=4, concentration=0.7)


def row(chain, context):
    """p(w | context) from the table, read by hand."""
    return chain.transition_probs[sum(id * chain.vocabulary_size**n for n, id in enumerate(reversed(context)))]


def exact(chain, length):
    """Every text of a length with its probability, by multiplying along the chain."""
    size, order = chain.vocabulary_size, chain.order
    for text in itertools.product(range(size), repeat=length):
        p = chain.stationary[sum(id * size**n for n, id in enumerate(reversed(text[:order])))]
        for place in range(order, length):
            p *= row(chain, text[place - order : place])[text[place]]
        yield text, p


@pytest.mark.parametrize("order", [1, 2, 3])
def test_rows_are_distributions_and_the_stationary_one_stays(order):
    chain = dataclasses.replace(CHAIN, order=order)
    assert chain.transition_probs.shape == (3**order, 3)
    np.testing.assert_allclose(chain.transition_probs.sum(axis=1), 1)
    step = np.zeros((3**order, 3**order))  # from context to context
    for context in itertools.product(range(3), repeat=order):
        for id in range(3):
            after = sum(i * 3**n for n, i in enumerate(reversed([*context[1:], id])))
            step[sum(i * 3**n for n, i in enumerate(reversed(context))), after] += row(chain, context)[id]
    np.testing.assert_allclose(chain.stationary @ step, chain.stationary, atol=1e-13)
    values, vectors = np.linalg.eig(step.T)
    alone = np.real(vectors[:, np.argmin(abs(values - 1))])
    np.testing.assert_allclose(chain.stationary, alone / alone.sum(), atol=1e-12)


def test_the_entropy_rate_is_what_one_more_id_adds_to_the_entropy_of_a_text():
    entropies = [-sum(p * math.log(p) for _, p in exact(CHAIN, length)) for length in (2, 3, 4, 5)]
    np.testing.assert_allclose(np.diff(entropies), CHAIN.entropy_rate, rtol=1e-10)


def test_the_true_loss_of_a_text_is_its_probability():
    for text, p in exact(CHAIN, 4):
        assert CHAIN.token_losses(text).sum() == pytest.approx(-math.log(p), rel=1e-10)
    begun = dict(exact(CHAIN, 2))
    for first in range(3):
        marginal = sum(p for text, p in begun.items() if text[0] == first)
        assert CHAIN.token_losses([first]) == pytest.approx(-math.log(marginal))


def test_a_text_is_drawn_from_the_chain():
    ids = CHAIN.sample(60_000, seed=0)
    assert ids.dtype == "int32"
    windows = np.lib.stride_tricks.sliding_window_view(ids, 3) @ [9, 3, 1]
    counted = np.bincount(windows, minlength=27) / len(windows)
    np.testing.assert_allclose(counted, [p for _, p in exact(CHAIN, 3)], atol=0.01)  # 5 deviations
    nats = CHAIN.token_losses(ids)
    assert nats.mean() == pytest.approx(CHAIN.entropy_rate, abs=5 * nats.std() / math.sqrt(len(nats)))


def test_the_first_ids_are_drawn_from_the_stationary_distribution():
    first = np.array([CHAIN.sample(2, seed) @ [3, 1] for seed in range(3000)])
    counted = np.bincount(first, minlength=9) / len(first)
    np.testing.assert_allclose(counted, CHAIN.stationary, atol=0.045)


def test_a_text_is_a_function_of_chain_and_seed():
    ids = CHAIN.sample(200, seed=1)
    np.testing.assert_array_equal(ids, dataclasses.replace(CHAIN).sample(200, seed=1))
    np.testing.assert_array_equal(ids[:50], CHAIN.sample(50, seed=1))
    assert (ids != CHAIN.sample(200, seed=2)).any()
    assert (CHAIN.transition_probs != dataclasses.replace(CHAIN, seed=5).transition_probs).all()
    assert [len(CHAIN.sample(n, seed=1)) for n in (0, 1, 2)] == [0, 1, 2]


def test_a_smaller_concentration_is_more_certain():
    rates = [dataclasses.replace(CHAIN, order=3, concentration=c).entropy_rate for c in (0.2, 1.0, 100.0)]
    assert 0 < rates[0] < rates[1] < rates[2] < math.log(3)
    assert rates[2] == pytest.approx(math.log(3), abs=0.01)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vocabulary_size": 1}, "vocabulary_size="),
        ({"order": 0}, "order="),
        ({"order": 14}, "vocabulary_size=3 and order=14"),
        ({"seed": -1}, "seed="),
        ({"concentration": 0.0}, "concentration="),
        ({"concentration": math.nan}, "concentration="),
        ({"concentration": 1e-3, "order": 1}, "does not converge"),
    ],
)
def test_what_makes_no_chain_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CHAIN, **given)

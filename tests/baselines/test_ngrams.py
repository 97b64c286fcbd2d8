import collections
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.baselines import KneserNeyNGrams


def oracle(train, order, size):
    """p(id | context) by the formula, one n-gram at a time, from dicts of what was seen."""
    grams = [tuple(train[i : i + m]) for m in range(1, order + 1) for i in range(len(train) - m + 1)]
    longest = max(map(len, grams))
    counts = collections.Counter(gram for gram in grams if len(gram) == longest)
    for gram in {gram for gram in grams if len(gram) > 1}:
        counts[gram[1:]] += 1  # one more id that stood before gram[1:]
    discounts = {}
    for m in range(1, longest + 1):
        n1, n2 = (sum(1 for gram, c in counts.items() if len(gram) == m and c == k) for k in (1, 2))
        discounts[m] = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5

    def p(id, context):
        lower = p(id, context[1:]) if context else 1 / size
        after = {gram[-1]: c for gram, c in counts.items() if gram[:-1] == context}
        if not after:
            return lower
        discount = discounts[len(context) + 1]
        return (max(after.get(id, 0) - discount, 0) + discount * len(after) * lower) / sum(after.values())

    return lambda id, context: p(id, tuple(context)[-(order - 1) :] if order > 1 else ())


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40), st.lists(st.integers(0, 5), max_size=15), st.integers(1, 5)
)
def test_it_is_the_formula(train, validation, order):
    ngrams, p = KneserNeyNGrams(train, order, 6), oracle(train, order, 6)
    expected = [-math.log(p(id, validation[:t])) for t, id in enumerate(validation)]
    np.testing.assert_allclose(ngrams.token_losses(validation), expected, rtol=1e-12)
    np.testing.assert_allclose(ngrams.distribution(validation), [p(id, validation) for id in range(6)], rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_probabilities_are_above_zero_and_sum_to_one_whatever_came_before(order):
    random = np.random.default_rng(0)
    train = random.integers(5, size=300)
    ngrams = KneserNeyNGrams(train, order, 9)
    contexts = [[], [3], [8], [3, 8], [8, 3], train[-3:], train[:3], random.integers(9, size=20)]
    for context in contexts:
        p = ngrams.distribution(context)
        assert p.sum() == pytest.approx(1, abs=1e-12)
        assert (p > 0).all()


@pytest.mark.parametrize("min_counts", [(1, 1, 1), (1, 1, 3), (2, 2, 4), (9, 9, 9), (54, 99, 99)])
def test_what_is_left_out_leaves_its_probability_to_shorter_contexts(min_counts):
    random = np.random.default_rng(3)
    train, validation = random.integers(4, size=200).tolist(), random.integers(5, size=30).tolist()
    whole, some = KneserNeyNGrams(train, 3, 5), KneserNeyNGrams(train, 3, 5, min_counts)
    grams = collections.Counter(tuple(train[i : i + m]) for m in (1, 2, 3) for i in range(len(train) - m + 1))

    def discounted(context):  # without what the shorter context adds, from the model of all n-grams
        p = whole.distribution(context)
        lower = whole.distribution(context[1:]) if context else np.full(5, 1 / 5)
        unseen = next(id for id in range(5) if (*context, id) not in grams)
        return p - p[unseen] / lower[unseen] * lower

    def expected(context):
        lower = expected(context[1:]) if context else np.full(5, 1 / 5)
        if (context and context not in grams) or not any((*context, id) in grams for id in range(5)):
            return lower
        least = min_counts[len(context)]
        stored = np.where([grams[(*context, id)] >= least for id in range(5)], discounted(context), 0)
        return stored + (1 - stored.sum()) * lower

    rows = [expected(tuple(validation[max(0, t - 2) : t])) for t in range(len(validation) + 1)]
    np.testing.assert_allclose(some.distributions(validation), rows, rtol=1e-9)
    np.testing.assert_allclose(some.distributions(validation).sum(axis=1), 1, rtol=1e-12)
    losses = -np.log([row[id] for row, id in zip(rows, validation, strict=False)])
    np.testing.assert_allclose(some.token_losses(validation), losses, rtol=1e-9)
    assert len(some.codes) == sum(count >= min_counts[len(gram) - 1] for gram, count in grams.items())


def test_the_highest_order_counts_occurrences_and_the_lower_ones_neighbors():
    # 2 stands in 4 places, always behind 1; 3 in 3 places, behind three different ids
    train = [1, 2, 1, 2, 1, 2, 1, 2, 0, 3, 1, 3, 4, 3]
    frequent = KneserNeyNGrams(train, 1, 5).distribution([])
    assert frequent[2] > frequent[3]
    behind_what_is_new = KneserNeyNGrams([*train, 0], 2, 7).distribution([6])
    assert behind_what_is_new[3] > behind_what_is_new[2]


def test_a_longer_order_than_the_text_is_the_order_of_the_text():
    train, text = [0, 1, 2], [0, 1, 2, 0, 1, 2]
    np.testing.assert_array_equal(
        KneserNeyNGrams(train, 9, 3).token_losses(text), KneserNeyNGrams(train, 3, 3).token_losses(text)
    )
    assert KneserNeyNGrams(train, 9, 3).token_losses([]).shape == (0,)


def test_one_distinct_id():
    ngrams = KneserNeyNGrams([0] * 50, 3, 1)
    np.testing.assert_allclose(ngrams.token_losses([0] * 8), 0, atol=1e-12)
    assert KneserNeyNGrams([0] * 50, 3, 2).token_losses([0] * 8)[2:].max() < 0.1
    assert np.isfinite(KneserNeyNGrams([0], 3, 2).token_losses([1, 1, 0])).all()


def test_thousands_of_ids_in_long_contexts_do_not_overflow():
    size = 50_000  # size ** 6 is far beyond an int64
    text = np.random.default_rng(2).integers(size, size=2_000)
    ngrams = KneserNeyNGrams(text, 6, size)
    assert ngrams.token_losses(text)[5:].max() < 5 < ngrams.token_losses(np.roll(text, 1))[:1].max()
    assert ngrams.distribution(text[:5]).argmax() == text[5]


@pytest.mark.parametrize(
    ("ids", "order", "size", "message"),
    [
        ([], 2, 3, "ids is empty"),
        ([0, 3], 2, 3, "The id 3 at position 1"),
        ([0, -1], 2, 3, "The id -1"),
        ([0.5], 2, 3, "integers"),
        ([[0]], 2, 3, "along one axis"),
        ([0], 0, 3, "order="),
        ([0], 2.0, 3, "order="),
        ([0], 2, 0, "vocabulary_size="),
        ([0, 1], 2, 2**62, "vocabulary_size="),
    ],
)
def test_what_cannot_be_counted_is_refused(ids, order, size, message):
    with pytest.raises(ValueError, match=message):
        KneserNeyNGrams(ids, order, size)


@pytest.mark.parametrize("min_counts", [(1,), (1, 1, 1), (2, 1), (0, 1), (1, 1.5), (1, None), 2, "ab"])
def test_counts_that_do_not_fit_are_named(min_counts):
    with pytest.raises(ValueError, match="min_counts="):
        KneserNeyNGrams([0, 1], 2, 3, min_counts)
    with pytest.raises(ValueError, match="no id occurs more than 3 times"):
        KneserNeyNGrams([0, 1, 0, 0], 2, 3, (4, 4))

"""Batches of rows and of masked tokens: functions of the step, with the proportions that are promised."""

import dataclasses

import numpy as np
import pytest

from keras_seq.data import ArrayBatches
from keras_seq.data.arrays import MaskedLMMaskGenerator

ROWS = np.random.default_rng(0).normal(size=(7, 2))


def order(examples, steps):
    """The numbers of the examples, as `steps` steps give them."""
    return np.concatenate([examples.batch(step)["number"] for step in range(steps)])


def numbered(count=7, batch_size=3, seed=1):
    return ArrayBatches({"number": np.arange(count), "row": ROWS[:count]}, batch_size, seed)


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_no_pass_holds_an_example_twice_and_other_passes_leave_out_others(batch_size):
    examples = numbered(batch_size=batch_size)
    passes = order(examples, 30 * examples.steps_per_epoch).reshape(30, -1)
    assert all(len(set(row)) == 7 // batch_size * batch_size for row in passes)
    assert {*passes.flat} == {*range(7)}


def test_passes_and_seeds_have_orders_of_their_own():
    examples = [ArrayBatches({"number": np.arange(50)}, batch_size=50, seed=seed) for seed in (0, 1, 2**40)]
    assert len({tuple(row) for of_seed in examples for row in order(of_seed, 6).reshape(6, 50)}) == 18


def test_any_example_can_stand_anywhere():
    places = order(numbered(batch_size=7), 400).reshape(400, 7)
    counts = np.stack([np.bincount(column, minlength=7) for column in places.T])
    assert (counts > 25).all()  # 57 each on average, deviation 7
    assert (counts < 95).all()


def test_the_rows_of_an_example_stay_together():
    batch = numbered().batch(5)
    np.testing.assert_array_equal(batch["row"], ROWS[batch["number"]])


def test_nested_tuples_and_a_single_example():
    examples = ArrayBatches((([3], [[1, 2]]), np.array(["a"])), batch_size=1)
    (x, y), z = examples.batch(9)
    assert (x.tolist(), y.tolist(), z.tolist()) == ([3], [[1, 2]], ["a"])
    [((x, y), z)] = examples.dataset(9, 10).as_numpy_iterator()
    assert (x.tolist(), y.tolist(), z.tolist()) == ([3], [[1, 2]], [b"a"])


V, PAD, MASK, CLS = 40, 0, 3, 7
MASKING = MaskedLMMaskGenerator(MASK, V, unselectable_token_ids=(PAD, CLS), seed=5)


def some_ids(shape, seed=0):
    return np.random.default_rng(seed).integers(V, size=shape).astype("int32")


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("fraction", [0.15, 0.4, 1.0])
def test_proportions_are_those_of_the_paper(fraction):
    ids = some_ids((400, 500))
    masked, targets, weights = dataclasses.replace(MASKING, mask_selection_rate=fraction).batch(0, ids)
    candidates = ~np.isin(ids, (PAD, MASK, CLS))
    chosen = weights == 1
    count = chosen.sum()  # about 28,000 at 0.15: proportions are within 5 sigma of 0.25 % of theirs
    assert count / candidates.sum() == pytest.approx(fraction, abs=0.005)
    hidden = chosen & (masked == MASK)
    assert hidden.sum() / count == pytest.approx(0.8, abs=0.0125)
    replaced = chosen & ~hidden & (masked != ids)
    ordinary = V - 3
    assert replaced.sum() / count == pytest.approx(0.1 * (1 - 1 / ordinary), abs=0.0125)  # some are drawn as they were
    drawn = np.bincount(masked[replaced], minlength=V)
    assert not drawn[[PAD, MASK, CLS]].any()
    assert (np.delete(drawn, (PAD, MASK, CLS)) > 0.5 * replaced.sum() / ordinary).all()
    np.testing.assert_array_equal(masked[~chosen], ids[~chosen])
    np.testing.assert_array_equal(targets, ids)
    assert set(np.unique(weights)) <= {0.0, 1.0}
    assert (masked.dtype, targets.dtype, weights.dtype) == ("int32", "int32", "float32")


def test_every_place_and_every_ordinary_id_is_as_likely_as_any_other():
    chosen = sum(MASKING.batch(step, np.full((30, 20), 11))[2] for step in range(150))
    assert chosen.mean() / 150 == pytest.approx(0.15, abs=0.005)
    assert 4 < chosen.min() < chosen.max() < 48  # 22.5 on average, 4.4 its deviation
    counts = np.bincount(*(lambda ids: (ids.ravel(), MASKING.batch(1, ids)[2].ravel()))(some_ids((400, 500))), V)
    assert np.delete(counts, (PAD, MASK, CLS)).min() > 0.12 * 5000 * 0.9


def test_a_row_without_a_candidate_has_no_weight():
    ids = some_ids((3, 30))
    ids[1] = [CLS, MASK, *[PAD] * 28]
    masked, _, weights = dataclasses.replace(MASKING, mask_selection_rate=0.9).batch(0, ids)
    assert not weights[1].any()
    np.testing.assert_array_equal(masked[1], ids[1])
    assert weights[0].any()
    assert weights[2].any()


def test_a_step_is_the_same_whenever_it_is_asked_and_unlike_any_other():
    ids = some_ids((8, 60))
    one = MASKING.batch(3, ids)
    assert same(one, MASKING.batch(3, ids))
    assert same(one, dataclasses.replace(MASKING).batch(np.int64(3), ids))
    assert not same(one, MASKING.batch(4, ids))
    assert not same(one, dataclasses.replace(MASKING, seed=6).batch(3, ids))
    assert not same(dataclasses.replace(MASKING, seed=3).batch(5, ids), MASKING.batch(3, ids))  # (3, 5) is not (5, 3)


def test_specials_and_padding_are_never_selected():
    masking = dataclasses.replace(MASKING, mask_selection_rate=1.0)
    for special in (PAD, MASK, CLS):
        ids = np.full((4, 50), special)
        masked, _, weights = masking.batch(2, ids)
        np.testing.assert_array_equal(masked, ids)
        assert not weights.any()

import numpy as np
import pytest

from keras_seq.data import ArrayBatches

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


def test_a_dataset_is_at_over_a_range_and_begins_anywhere():
    examples = numbered()
    for step, batch in enumerate(examples.dataset(2, 5), start=2):
        np.testing.assert_array_equal(batch["number"], examples.batch(step)["number"])


def test_nested_tuples_and_a_single_example():
    examples = ArrayBatches((([3], [[1, 2]]), np.array(["a"])), batch_size=1)
    (x, y), z = examples.batch(9)
    assert (x.tolist(), y.tolist(), z.tolist()) == ([3], [[1, 2]], ["a"])
    [((x, y), z)] = examples.dataset(9, 10).as_numpy_iterator()
    assert (x.tolist(), y.tolist(), z.tolist()) == ([3], [[1, 2]], [b"a"])


def test_steps_per_epoch():
    assert [numbered(count).steps_per_epoch for count in (3, 4, 6, 7)] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("arrays", "batch_size", "seed", "names"),
    [
        ((), 2, 0, "arrays have no examples"),
        ((np.zeros(0),), 2, 0, "0 examples"),
        ((np.zeros(3), np.zeros(4)), 2, 0, "{3, 4}"),
        ((np.float32(1),), 2, 0, "None"),
        ((np.zeros(3),), 4, 0, "3 examples for batch_size=4"),
        ((np.zeros(3),), 0, 0, "batch_size"),
        ((np.zeros(3),), 2, -1, "seed"),
    ],
)
def test_what_makes_no_batches_is_refused_by_name(arrays, batch_size, seed, names):
    with pytest.raises(ValueError, match=names):
        ArrayBatches(arrays, batch_size, seed)

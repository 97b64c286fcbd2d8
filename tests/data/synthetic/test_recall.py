import dataclasses

import numpy as np
import pytest

from keras_seq.data.synthetic import recall

TASKS = {
    "associative_recall": recall.AssociativeRecall(11, (1, 20), (1, 8), 64, seed=3),
    "induction": recall.Induction(24, (2, 20), (1, 8), 64, seed=3),
    "selective_copy": recall.SelectiveCopy(6, (1, 20), (1, 8), 64, seed=3),
    "parity": recall.Parity(2, (1, 20), (1, 1), 64, seed=3),
    "permutations": recall.Permutations(11, (1, 20), (1, 1), 64, seed=3),
    "needle": recall.Needle(9, (1, 20), (1, 1), 64, seed=3),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def test_every_task_is_tested():
    assert {name: type(task) for name, task in TASKS.items()} == recall.RECALL_TASKS


@every_task
def test_the_solution_is_right_everywhere(task):
    for step in range(5):
        x, y = task.batch(step)
        assert x.dtype == y.dtype == np.int32
        assert x.shape == y.shape == (64, task.sequence_length)
        assert 0 <= x.min() <= x.max() < task.vocabulary_size
        assert (y >= 0).any(axis=1).all()
        np.testing.assert_array_equal(task.solve(x), y)


@every_task
def test_lengths_and_items_are_all_drawn_and_those_of_with_sizes(task):
    ys = np.concatenate([task.batch(step)[1] for step in range(20)])
    if task.has_items:
        assert {*(ys >= 0).sum(axis=1)} == {*range(1, 9)}
    sized = task.with_sizes(18, 5 if task.has_items else 1)
    x, y = sized.batch(2)
    np.testing.assert_array_equal(sized.solve(x), y)
    if task.has_items:
        assert ((y >= 0) == (np.arange(23) >= 18)).all()
    else:
        assert x.shape[1] == {"Parity": 18, "Permutations": 18, "Needle": 20}[type(task).__name__]


@every_task
def test_a_batch_is_a_function_of_seed_and_step(task):
    first = task.batch(7)
    np.testing.assert_array_equal(task.batch(7), first)
    other = dataclasses.replace(task, seed=4)
    assert not np.array_equal(task.batch(8)[0], first[0])
    assert not np.array_equal(other.batch(7)[0], first[0])


@every_task
def test_chance_is_the_accuracy_of_a_guess(task):
    """Guess from what the row has: any of its values, of the letters that follow another, of all letters."""
    length, items = 16, 4 if task.has_items else 1
    task, random = dataclasses.replace(task.with_sizes(length, items), batch_size=8000), np.random.default_rng(0)
    x, y = task.batch(0)
    choices = {
        recall.AssociativeRecall: lambda: x[:, 1 : 2 * items : 2],
        recall.Induction: lambda: x[:, 1:length],
        recall.Permutations: lambda: np.tile(np.arange(120), (len(x), 1)),
    }.get(type(task), lambda: np.tile(np.arange(task.alphabet_size), (len(x), 1)))()
    last = y[:, -1]
    guess = np.take_along_axis(choices, random.integers(choices.shape[1], size=(len(x), 1)), axis=1)[:, 0]
    is_target = last >= 0
    p = task.chance(length, items)
    error = 4 * np.sqrt(p * (1 - p) / is_target.sum())
    if type(task) is recall.Induction:  # the letter that was queried is not among the guesses that can be right
        assert p == 1 / (length - 1)
    if type(task) is recall.Needle:
        last, is_target = y.max(axis=1), np.ones(len(y), bool)
    assert (guess == last)[is_target].mean() == pytest.approx(p, abs=error)


def test_by_hand():
    task = recall.AssociativeRecall(4, (4, 4), (2, 2), 1)
    np.testing.assert_array_equal(task.solve(np.array([[2, 5, 0, 7, 0, 2]])), [[-1, -1, -1, -1, 7, 5]])
    task = recall.Induction(4, (3, 3), (1, 1), 1)
    np.testing.assert_array_equal(task.solve(np.array([[2, 0, 3, 0]])), [[-1, -1, -1, 3]])
    task = recall.SelectiveCopy(3, (4, 4), (2, 2), 1)
    np.testing.assert_array_equal(task.solve(np.array([[4, 2, 4, 1, 3, 3]])), [[-1, -1, -1, -1, 2, 1]])
    task = recall.Parity(2, (4, 4), (1, 1), 1)
    np.testing.assert_array_equal(task.solve(np.array([[1, 0, 1, 1]])), [[1, 1, 0, 1]])
    task, orders = recall.Permutations(11, (4, 4), (1, 1), 1), recall.ORDERS.tolist()
    first, last = orders.index([1, 0, 2, 3, 4]), orders.index([0, 1, 2, 4, 3])
    assert {0, first, last} < {*range(11)}
    both = orders.index([1, 0, 2, 4, 3])
    np.testing.assert_array_equal(task.solve(np.array([[first, last, first, last]])), [[first, both, last, 0]])
    middle, around = orders.index([0, 2, 1, 3, 4]), orders.index([1, 2, 0, 3, 4])  # a swap of places, not of things
    np.testing.assert_array_equal(task.solve(np.array([[first, middle, 0, 0]])), [[first, around, around, around]])
    task = recall.Needle(3, (3, 3), (1, 1), 1)
    np.testing.assert_array_equal(task.solve(np.array([[3, 1, 0, 2, 4]])), [[-1, -1, -1, -1, 1]])


def test_a_needle_is_anywhere_and_its_distance_is_the_length():
    task = dataclasses.replace(TASKS["needle"], batch_size=2000)
    x, y = task.batch(0)
    distance = y.argmax(axis=1) - (x == task.padding - 2).argmax(axis=1) - 1
    counts = np.bincount(distance, minlength=21)[1:]
    assert counts.sum() == 2000
    assert counts.min() > 60  # of 100 on average
    short = dataclasses.replace(task, lengths=(1, 20)).batch(1)[0]
    assert {*(short == task.padding - 2).argmax(axis=1)} == {*range(20)}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("associative_recall", {"alphabet_size": 1}),
        ("associative_recall", {"alphabet_size": 7}),  # keys differ
        ("associative_recall", {"lengths": (1, 15)}),  # 8 pairs take 16
        ("induction", {"alphabet_size": 19}),
        ("induction", {"lengths": (1, 20)}),
        ("selective_copy", {"items": (0, 3)}),
        ("selective_copy", {"items": (3, 2)}),
        ("selective_copy", {"items": 3}),
        ("parity", {"alphabet_size": 3}),
        ("parity", {"items": (1, 2)}),
        ("permutations", {"alphabet_size": 120}),
        ("needle", {"lengths": (1, 2.0)}),
        ("needle", {"batch_size": 0}),
        ("needle", {"seed": -1}),
    ],
)
def test_mistakes_are_named(name, changes):
    with pytest.raises(ValueError, match=f"^{next(iter(changes))}=.*expected"):
        dataclasses.replace(TASKS[name], **changes)

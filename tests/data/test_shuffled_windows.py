import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.data import ShuffledWindows
from keras_seq.random_draws import permutation


def starts(windows, steps):
    return [windows.starts(step) for step in range(steps)]


@given(
    sequence_length=st.integers(1, 5),
    batch_size=st.integers(1, 4),
    stride=st.none() | st.integers(1, 7),
    extra=st.integers(0, 30),
    seed=st.integers(0, 3),
)
@settings(max_examples=60)
def test_an_epoch_has_windows_at_multiples_of_the_stride_each_at_most_once(
    sequence_length, batch_size, stride, extra, seed
):
    count = sequence_length + 1 + (batch_size - 1) * (stride or sequence_length) + extra
    windows = ShuffledWindows(np.arange(count), batch_size, sequence_length, stride, seed)
    possible = range(0, count - sequence_length, stride or sequence_length)
    assert windows.num_windows == len(possible)
    found = np.concatenate(starts(windows, windows.steps_per_epoch))
    assert len(found) == len(possible) // batch_size * batch_size
    assert len({*found}) == len(found)
    assert {*found} <= {*possible}
    x, y = windows.batch(0)
    np.testing.assert_array_equal(x, found[:batch_size, None] + np.arange(sequence_length))
    np.testing.assert_array_equal(y, x + 1)


def test_a_step_has_its_part_of_the_order_whichever_came_before():
    windows = ShuffledWindows(np.arange(10 * 2 * 150 + 1), 2, 10, seed=4)
    for step in (299, 64, 0, 63, 149, 150, 128, 65):
        epoch, index = divmod(step, 150)
        expected = permutation(300, 4, epoch, "windows")[2 * index : 2 * index + 2] * 10
        np.testing.assert_array_equal(windows.starts(step), expected)


@pytest.mark.parametrize(("stride", "times"), [(8, 1), (2, 4), (1, 8)])
def test_an_epoch_predicts_every_id_as_often_as_windows_overlap(stride, times):
    windows = ShuffledWindows(np.arange(8 * 50 + 1), batch_size=1, sequence_length=8, stride=stride)
    targets = np.concatenate([y.ravel() for _, y in windows.dataset(0, windows.steps_per_epoch).as_numpy_iterator()])
    assert (np.bincount(targets)[8:-8] == times).all()
    assert targets.size == pytest.approx(times * 8 * 50, rel=0.02)


def test_epochs_and_seeds_have_different_orders_and_leave_out_other_windows():
    ids = np.arange(4 * 50 + 1)
    orders = [
        np.concatenate(starts(ShuffledWindows(ids, 8, 4, seed=seed), 3 * 6)).reshape(3, -1) for seed in (0, 1, 2**40)
    ]
    assert len({tuple(row) for of_seed in orders for row in of_seed}) == 9
    assert len({tuple(sorted(row)) for of_seed in orders for row in of_seed}) == 9  # 2 of 50 are left out

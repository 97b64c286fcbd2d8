import numpy as np
import pytest

from keras_seq.random_draws import BLOCK, RowDraws, philox, uniform_draws

pytestmark = pytest.mark.any_backend
KNOWN_ANSWERS = [  # of Random123, by the authors of the paper: counter, key, words
    (4 * [0], 2 * [0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (4 * [2**32 - 1], 2 * [2**32 - 1], [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def test_the_words_are_those_of_the_paper():
    for counter, key, words in KNOWN_ANSWERS:
        assert philox(np.array(counter, "uint64")[:, None], key)[:, 0].tolist() == words


@pytest.mark.parametrize(
    ("seed", "row", "count"), [(0, 0, 7), (5, 3, 100), (2**40 + 17, 2**33 + 1, 9), (2**63 - 1, 1, 4)]
)
def test_the_numbers_are_those_that_a_graph_of_tensorflow_draws(seed, row, count):
    tf = pytest.importorskip("tensorflow")
    expected = tf.random.stateless_uniform([count], [seed, row], alg="philox").numpy()
    np.testing.assert_array_equal(uniform_draws(seed, row, count), expected)


def test_fewer_numbers_are_the_first_of_more_and_rows_and_seeds_differ():
    draws = uniform_draws(3, 4, 50)
    for count in (0, 1, 7, 50):
        np.testing.assert_array_equal(uniform_draws(3, 4, count), draws[:count])
    others = [draws, uniform_draws(3, 5, 50), uniform_draws(4, 4, 50), uniform_draws(4, 3, 50)]
    assert len({value for row in others for value in row.tolist()}) == 200


def test_they_are_uniform():
    draws = np.concatenate([uniform_draws(11, row, 500) for row in range(40)])
    assert draws.dtype == "float32"
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 50.8  # chi-square of 19 degrees of freedom: 1 in 10,000 lies above


def test_blocks_are_the_numbers_of_the_rows():
    starts, end = np.array([3, 1, 2000]), 2 * BLOCK + 700
    draws, columns = RowDraws(5, 2, starts, end), []
    column = 1
    while column < end:
        count = min(37, end - column)
        columns.append(draws(column, count))
        column += count
    for row, (start, found) in enumerate(zip(starts, np.concatenate(columns, axis=1), strict=True)):
        np.testing.assert_array_equal(found[start - 1 :], uniform_draws(5, 2 + row, end - start))
        assert not found[: start - 1].any()
    assert RowDraws(5, 0, np.array([1]), 2**31)(1, 1).nbytes == 4

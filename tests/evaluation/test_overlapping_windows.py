import numpy as np
import pytest
import tensorflow as tf

from keras_seq.evaluation.streaming import overlapping_window_logits


@pytest.mark.parametrize("length", [4, 7, 16])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 30, 33])
def test_a_long_text_is_read_as_a_whole_as_far_as_a_quarter_of_the_length(length, count):
    """The logits at t are the ids a quarter of the length before and after it."""
    far = length // 4

    def neighbors(ids):
        padded = tf.pad(ids, [[0, 0], [far, far]])
        return tf.stack([padded[:, : -2 * far], padded[:, 2 * far :], ids], -1)

    ids = np.random.default_rng(count).integers(1, 9, count)
    logits = overlapping_window_logits(neighbors, ids, length, batch_size=3)
    np.testing.assert_array_equal(logits, neighbors(ids[None])[0])

import itertools

import keras
import numpy as np
import pytest

from experiments.loss_by_position.scores import (
    Estimate,
    bin_edges,
    block_sums,
    by_bin,
    octaves,
    position_scores,
    window_losses,
    window_starts,
)
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig, TransformerConfig

N, STRIDE, MAX_LENGTH, BLOCK = 150, 8, 32, 64
IDS = np.random.default_rng(0).integers(6, size=N)
STARTS = window_starts(IDS, STRIDE, MAX_LENGTH)


def some_losses(length=MAX_LENGTH, seed=0):
    return np.random.default_rng(seed).uniform(0, 5, (len(STARTS), length)).astype("float32")


def one_character_at_a_time(losses):
    """The losses of each character in each octave, by looking for it in every window."""
    found = {}
    for place in range(N):
        row = []
        for low in (4, 8, 16):
            there = [
                losses[n, place - start]
                for n, start in enumerate(STARTS)
                if low <= place - start < min(2 * low, MAX_LENGTH)
            ]
            row.append(np.mean(there) if len(there) == max(1, low // STRIDE) else None)
        if None not in row:
            found[place] = row
    return found


def test_every_window_is_whole_and_begins_a_stride_after_the_last():
    assert STARTS.tolist() == list(range(0, N - MAX_LENGTH, STRIDE))
    assert STARTS[-1] + MAX_LENGTH < N  # the id behind the last character is there
    assert STARTS[-1] + STRIDE + MAX_LENGTH >= N


def test_octaves_are_those_of_a_search_through_every_window():
    losses = some_losses()
    of_octaves, places = octaves(losses, STARTS, STRIDE, MAX_LENGTH)
    expected = one_character_at_a_time(losses)
    assert places.tolist() == list(expected)
    assert len(places) > 30
    np.testing.assert_allclose(of_octaves, list(expected.values()), rtol=1e-6)


def test_a_model_of_a_shorter_context_is_scored_on_the_same_characters():
    losses = some_losses()
    whole, places = octaves(losses, STARTS, STRIDE, MAX_LENGTH)
    for length, columns in ((8, 1), (16, 2)):
        part, same = octaves(losses[:, :length], STARTS, STRIDE, MAX_LENGTH)
        np.testing.assert_array_equal(same, places)
        np.testing.assert_array_equal(part, whole[:, :columns])


def test_what_differs_from_text_to_text_is_not_taken_for_a_worth_of_the_past():
    """A loss that belongs to the character alone falls by nothing, and with no error, however uneven the text."""
    text = np.random.default_rng(3).exponential(2.0, N)
    losses = text[STARTS[:, None] + np.arange(MAX_LENGTH)] - 0.1 * np.log2(np.arange(1, MAX_LENGTH + 1) / 4).clip(
        0
    ).astype(int)
    of_octaves, places = octaves(losses, STARTS, STRIDE, MAX_LENGTH)
    sums, counts = block_sums(of_octaves, places, BLOCK)
    gain, error = Estimate.of(sums[:, 0] - sums[:, 2], counts)
    by_octave = -0.1 * np.log2(np.arange(1, MAX_LENGTH + 1) / 4).clip(0).astype(int)
    assert gain == pytest.approx(by_octave[4:8].mean() - by_octave[16:32].mean(), abs=0.03)
    assert error < 0.02 < 2.0 / np.sqrt(len(places))


def test_the_means_of_bins_are_plain_means():
    losses, bins = some_losses(), [0, 1, 2, 5, 32]
    for (low, high), (mean, error) in zip(itertools.pairwise(bins), by_bin(losses, STARTS, bins, BLOCK), strict=True):
        assert mean == pytest.approx(losses[:, low:high].mean(dtype="float64"))
        assert 0 < error < 1.5
    alike = np.broadcast_to(losses[0], losses.shape)
    np.testing.assert_allclose([e.error for e in by_bin(alike, STARTS, bins, BLOCK)], 0, atol=1e-9)


def test_bins_get_wider_by_half_an_octave():
    assert bin_edges(1, 64) == [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64]
    assert bin_edges(64, 512) == [64, 91, 128, 181, 256, 362, 512]
    assert bin_edges(48, 96) == [48, 68, 96]
    assert bin_edges(64, 64) == [64]


def test_the_first_positions_are_scored_in_many_windows_and_no_position_is_left_out():
    model = LSTMConfig(embedding_dim=3, units=4).build_model(6)
    losses = window_losses(Evaluator(model), IDS, STARTS, MAX_LENGTH)
    found = position_scores(Evaluator(model), IDS, (STRIDE, MAX_LENGTH))["by_position"]
    assert found["edges"] == [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32]
    assert len(found["losses"]) == len(found["standard_errors"]) == 10
    alone = [model(IDS[None, start : start + 1])[0, 0] for start in range(N - STRIDE)]  # S / 8 is 1: every character
    targets = IDS[1 : N - STRIDE + 1]
    first = keras.losses.sparse_categorical_crossentropy(targets, np.stack(alone), from_logits=True)
    assert found["losses"][0] == pytest.approx(float(np.mean(first)), rel=1e-5)
    assert found["losses"][-1] == pytest.approx(losses[:, 23:].mean(), rel=1e-5)


def test_the_error_of_a_mean_is_that_of_its_blocks():
    values = np.random.default_rng(1).normal(2.0, 3.0, 4000)
    sums, counts = block_sums(values, np.arange(4000), 100)
    mean, error = Estimate.of(sums, counts)
    assert mean == pytest.approx(values.mean())
    by_block = values.reshape(40, 100).mean(axis=1)
    assert error == pytest.approx(by_block.std(ddof=1) / np.sqrt(40))
    repeated = np.repeat(values[::100], 100)  # blocks of one value each: 40 draws, not 4,000
    sums, counts = block_sums(repeated, np.arange(4000), 100)
    assert Estimate.of(sums, counts)[1] == pytest.approx(values[::100].std(ddof=1) / np.sqrt(40))


def test_blocks_without_a_character_do_not_count():
    sums, counts = block_sums(np.ones((3, 2)), np.array([1, 25, 26]), 10)
    assert counts.tolist() == [1, 2]
    assert sums.tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    "model_config",
    [
        LSTMConfig(embedding_dim=3, units=4),
        TransformerConfig(4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=16),
    ],
)
def test_windows_are_scored_each_on_its_own(model_config):
    model = model_config.build_model(6)
    losses = window_losses(Evaluator(model, batch_size=4), IDS, STARTS, 16)
    assert (losses.shape, losses.dtype) == ((len(STARTS), 16), "float32")
    for n in (0, 5, len(STARTS) - 1):
        window = IDS[STARTS[n] : STARTS[n] + 17]
        expected = keras.losses.sparse_categorical_crossentropy(
            window[1:], model(window[None, :-1])[0], from_logits=True
        )
        np.testing.assert_allclose(losses[n], expected, rtol=1e-5)


def test_a_transformer_takes_no_more_than_its_context():
    model = TransformerConfig(4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=8).build_model(6)
    with pytest.raises(ValueError, match="at most context_length=8"):
        window_losses(Evaluator(model), IDS, STARTS, 16)

"""CTC's decoders against the enumeration of all alignments."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.generation import ctc_beam_search, ctc_greedy

pytestmark = pytest.mark.any_backend


def totals(logits, blank):
    """log p of each sequence of labels, of the logits `[T, V]` of one row."""
    log_p = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    by_labels = {}
    for alignment in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        labels = tuple(label for label, _ in itertools.groupby(alignment) if label != blank)
        by_labels.setdefault(labels, []).append(sum(log_p[t, k] for t, k in enumerate(alignment)))
    return {labels: np.logaddexp.reduce(scores) for labels, scores in by_labels.items()}


@given(st.integers(0, 1000), st.integers(1, 6), st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from([0, 2]))
@settings(max_examples=12)
def test_with_many_beams_every_sequence_has_the_probability_of_its_alignments(seed, length, scale, blank):
    random = np.random.default_rng(seed)
    logits, mask = random.normal(size=(2, length, 3)) * scale, random.random((2, length)) < 0.8
    padded = np.where(mask[..., None], logits, np.nan)
    found, log_p = ctc_beam_search(padded, mask, num_beams=400, blank=blank)
    assert (found.dtype, log_p.dtype) == ("int32", "float64")
    for row in range(2):
        expected = totals(logits[row, mask[row]], blank)
        count = len(expected)
        got = [tuple(labels[labels >= 0].tolist()) for labels in found[row, :count]]
        assert {*got} == expected.keys()
        np.testing.assert_allclose(log_p[row, :count], [expected[labels] for labels in got], rtol=1e-6, atol=1e-6)
        assert (np.diff(log_p[row, :count]) <= 0).all()
        assert np.isneginf(log_p[row, count:]).all()


def test_few_beams_find_what_greedy_search_does_not():
    logits = np.log([[[0.6, 0.4], [0.6, 0.4]]])  # blanks are likeliest, and 1 has three alignments
    labels, log_p = ctc_greedy(logits)
    assert labels.tolist() == [[-1, -1]]
    assert np.exp(log_p[0]) == pytest.approx(0.36)
    labels, log_p = ctc_beam_search(logits, num_beams=2)
    assert labels.tolist() == [[[1, -1], [-1, -1]]]
    np.testing.assert_allclose(np.exp(log_p), [[0.64, 0.36]])


def test_greedy_labels_are_those_of_the_best_alignment_of_the_frames():
    random = np.random.default_rng(0)
    logits, mask = random.normal(size=(3, 8, 4)).astype("float32"), random.random((3, 8)) < 0.7
    labels, log_p = ctc_greedy(np.where(mask[..., None], logits, np.nan), mask, blank=3)
    for row in range(3):
        frames = logits[row, mask[row]].astype("float64")
        expected = [label for label, _ in itertools.groupby(frames.argmax(-1)) if label != 3]
        assert labels[row].tolist() == expected + [-1] * (8 - len(expected))
        best = frames.max(-1) - np.logaddexp.reduce(frames, axis=-1)
        assert log_p[row] == pytest.approx(best.sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ctc_greedy(np.zeros((3, 4))), r"\[B, T, V\]"),
        (lambda: ctc_greedy(np.zeros((2, 3, 4)), blank=4), "blank=4"),
        (lambda: ctc_beam_search(np.zeros((2, 3, 4)), num_beams=0), "num_beams=0"),
        (lambda: ctc_beam_search(np.zeros((2, 3, 4)), np.ones((2, 2), bool)), "mask has shape"),
        (lambda: ctc_greedy(np.full((2, 3, 4), np.nan)), "finite"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()

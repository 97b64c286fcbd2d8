"""What is scored during training speaks for the whole text, is the same for all models, and is a part of the result."""

import keras
import numpy as np
import pytest

from keras_seq.evaluation import Evaluator
from keras_seq.evaluation import evaluator as evaluator_module
from keras_seq.evaluation.evaluator import MIN_CONTEXT
from keras_seq.evaluation.streaming import MAX_STRETCHES, sample_rows, sample_windows
from keras_seq.models import GatedDeltaNetConfig, LSTMConfig, TransformerConfig
from tests.conftest import randomized
from tests.evaluation.test_evaluator import VOCABULARY, Toy, some_ids

MODELS = {
    "lstm": lambda: LSTMConfig(embedding_dim=4, units=8).build_model(VOCABULARY),
    "gated_deltanet": lambda: GatedDeltaNetConfig(
        embedding_dim=8, num_layers=1, num_heads=2, feed_forward_dim=8
    ).build_model(VOCABULARY),
    "transformer": lambda: TransformerConfig(8, 1, 2, 16, context_length=8).build_model(VOCABULARY),
    "longer context": lambda: TransformerConfig(8, 1, 2, 16, context_length=24).build_model(VOCABULARY),
    "keras.Model": lambda: keras.Sequential(
        [keras.Input((8,), dtype="int32"), keras.layers.Embedding(VOCABULARY, 4), keras.layers.Dense(VOCABULARY)]
    ),
}


@pytest.mark.parametrize(
    ("count", "length", "windows"),
    [(50, 7, 3), (5000, 8, 20), (9000, 4, 700), (9000, 4, 257), (101, 1, 99), (33, 8, 1)],
)
def test_the_windows_are_spread_and_belong_to_the_result(count, length, windows):
    ids = some_ids(count)
    sample, total = sample_windows(ids, length, windows), (count - 1) // length
    starts = sample.window_starts
    assert windows - len(sample.starts) < len(starts) <= windows
    assert len(sample.starts) <= MAX_STRETCHES
    assert (starts % length == 0).all()
    assert (np.diff(starts) >= length).all()  # none twice
    assert 0 <= starts[0] <= starts[-1] <= (total - 1) * length
    parts = np.arange(len(sample.starts) + 1) * total // len(sample.starts) * length
    assert (parts[:-1] <= sample.starts).all()
    assert (sample.starts + sample.length <= parts[1:]).all()  # one stretch in each of equal parts
    assert sample.tokens == len(starts) * length == len(sample.targets)
    assert (sample.targets.reshape(-1, length)[:, 0] == starts + 1).all()


def test_the_places_are_those_of_the_text():
    ids = some_ids(5000)
    first, again = (sample_windows(part, 8, 20).starts for part in (ids, ids.astype("int64")))
    assert (first == again).all()
    assert (first != sample_windows(some_ids(5000, seed=1), 8, 20).starts).any()
    assert np.ptp(first % (5000 // 20)) > 8  # not at one phase
    assert sample_windows(ids, 8, 5000 // 8) is None
    assert sample_windows(ids[:9], 8, 1) is None
    assert (sample_rows(ids.reshape(100, 50), 10) // 10 == np.arange(10)).all()


@pytest.mark.any_backend
@pytest.mark.parametrize("name", MODELS)
def test_sampled_losses_are_those_of_the_whole_text_or_of_texts_that_begin_before_a_stretch(name, monkeypatch):
    monkeypatch.setattr(evaluator_module, "MIN_CONTEXT", 16)  # few time steps compile fast
    model, ids, length = randomized(MODELS[name]()), some_ids(1000), 8
    evaluator, sample = Evaluator(model, batch_size=16), sample_windows(ids, length, 40)
    whole, chunked = evaluator.chunked_token_losses(ids, length), evaluator.chunked_token_losses(ids, length, sample)
    np.testing.assert_allclose(chunked, whole[sample.window_starts // length], atol=1e-5)
    found = evaluator.stretch_token_losses(ids, sample, chunked)
    assert found.shape == (len(sample.starts), sample.length)
    context = getattr(model, "context_length", 8)
    before = 16 if context is None else max(context // 2, context - length)
    for start, losses in zip(sample.starts, found, strict=True):
        begin = max(0, start - before) if context is None or start >= before else 0
        stop = start + sample.length
        if context is not None and start < before:  # a row is as long as the others
            stop = before + sample.length
        expected = evaluator.streaming_token_losses(ids[begin : stop + 1])[start - begin :][: sample.length]
        np.testing.assert_allclose(losses, expected, atol=2e-5)


@pytest.mark.any_backend
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(("context_length", "windows"), [(None, 3), (None, 30), (8, 30), (9, 30), (3, 30), (64, 30)])
def test_stretches_of_a_known_model(context_length, windows):
    toy, ids, length = Toy(context_length), some_ids(700), 8
    sample = sample_windows(ids, length, windows)
    losses = Evaluator(toy, batch_size=16).stretch_token_losses(ids, sample)
    if context_length is None:
        for start, row in zip(sample.starts, losses, strict=True):
            begin = max(0, start - MIN_CONTEXT)
            expected = toy.losses(ids[begin : start + length + 1])[start - begin :]
            np.testing.assert_allclose(row, expected, rtol=2e-5)
        return
    before = max(context_length // 2, context_length - length)  # ids that are read before a stretch
    window = min(context_length, before + length)
    for start, row in zip(sample.starts, losses, strict=True):
        begin, expected = max(0, start - before), []
        last = begin + before + length - window  # where the last window starts, so that it ends with the stretch
        for first in [*range(begin, last, max(1, window // 2)), last]:
            expected += toy.losses(ids[first : first + window + 1])[begin + len(expected) - first :]
        np.testing.assert_allclose(row, expected[start - begin :][:length], rtol=2e-5)


def test_the_sample_of_a_text_whose_end_is_another_speaks_for_both():
    random = np.random.default_rng(0)
    losses = np.where(np.arange(500)[:, None] < 250, 1.0, 3.0) + random.normal(0, 0.3, size=(500, 8))
    sample = sample_windows(some_ids(4001), 8, 40)
    mean = losses[sample.window_starts // 8].mean()
    assert abs(mean - losses.mean()) < sample.standard_error(losses) < 0.3
    assert abs(losses[:40].mean() - losses.mean()) > 3 * sample.standard_error(losses)

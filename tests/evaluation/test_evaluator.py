import itertools

import numpy as np
import pytest
from keras import ops

from keras_seq.evaluation import Evaluator
from keras_seq.evaluation.evaluator import sharing_losses, word_perplexity
from keras_seq.models import LSTMConfig, TransformerConfig

VOCABULARY = 5


class Toy:
    """A model with a known distribution: logits = table[id] + 0.3 [how often each id was seen so far]."""

    def __init__(self, context_length=None):
        self.context_length = context_length
        self.table = np.random.default_rng(0).normal(size=(VOCABULARY, VOCABULARY)).astype("float32")

    def get_initial_state(self, batch_size):
        return ops.zeros((batch_size, VOCABULARY))

    def __call__(self, ids, state=None, training=None, return_state=False):
        assert training is False
        seen = ops.cumsum(ops.one_hot(ids, VOCABULARY), axis=1) + (0.0 if state is None else state[:, None])
        logits = ops.take(self.table, ids, axis=0) + 0.3 * seen
        return (logits, seen[:, -1]) if return_state else logits

    def losses(self, window):
        """The oracle: -log p of each id of the window but the first, in a loop and in float64."""
        seen, losses = np.zeros(VOCABULARY), []
        for before, after in itertools.pairwise(window):
            seen[before] += 1
            logits = self.table[before].astype("float64") + 0.3 * seen
            losses.append(np.log(np.exp(logits).sum()) - logits[after])
        return losses


def some_ids(length, seed=0):
    return np.random.default_rng(seed).integers(VOCABULARY, size=length).astype("int32")


def assert_score(score, losses):
    assert score.tokens == len(losses)
    assert score.total == pytest.approx(np.sum(losses), rel=1e-5)
    assert score.mean == pytest.approx(np.mean(losses), rel=1e-5)
    assert score.bits_per_token == pytest.approx(np.mean(losses) / np.log(2), rel=1e-5)


@pytest.mark.any_backend
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("count", "length", "batch_size"), [(50, 7, 3), (50, 7, 7), (15, 7, 64), (8, 7, 1), (2, 1, 2), (9, 1, 4)]
)
def test_the_chunked_loss_is_the_sum_over_every_whole_window(count, length, batch_size):
    toy, ids = Toy(), some_ids(count)
    expected = [toy.losses(ids[start : start + length + 1]) for start in range(0, count - length, length)]
    evaluator = Evaluator(toy, batch_size)
    assert_score(evaluator.chunked_loss(ids, length), np.ravel(expected))
    np.testing.assert_allclose(evaluator.chunked_token_losses(ids, length), expected, rtol=1e-5)


@pytest.mark.any_backend
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("length", [1, 6, 39, 40, 100])
def test_the_streaming_loss_of_a_recurrent_model_is_one_long_pass_however_it_is_cut(length):
    toy, ids = Toy(), some_ids(40)
    assert_score(Evaluator(toy).streaming_loss(ids, length), toy.losses(ids))


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("context_length", [1, 2, 3, 7, 8])
def test_windows_of_a_model_with_a_context_count_every_id_once_with_half_the_context_before_it(context_length):
    toy = Toy(context_length)
    for count in (2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 16, 17, 23, 40):
        ids = some_ids(count, seed=count)
        width = min(context_length, count - 1)
        half = max(1, width // 2)
        last = count - 1 - width  # where the last window starts, so that it ends with the text
        starts = [*range(0, last, half), last]
        losses = {}
        for start in starts:
            for place, loss in enumerate(toy.losses(ids[start : start + width + 1]), start + 1):
                losses.setdefault(place, loss)  # the first window that reaches an id scores it
                assert place in range(1, count)
        assert sorted(losses) == list(range(1, count))
        score = Evaluator(toy, batch_size=3).streaming_loss(ids)
        assert score.tokens == count - 1, (context_length, count)
        assert score.total == pytest.approx(sum(losses.values()), rel=1e-5), (context_length, count)


@pytest.mark.any_backend
def test_the_streaming_loss_of_an_lstm_is_one_long_pass(randomize):
    model, ids = randomize(LSTMConfig(embedding_dim=3, units=4).build_model(VOCABULARY)), some_ids(30)
    logits = ops.convert_to_numpy(model(ids[None, :-1]))[0].astype("float64")
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(29), ids[1:]]
    assert_score(Evaluator(model).streaming_loss(ids, chunk_length=20), losses)


@pytest.mark.any_backend
@pytest.mark.usefixtures("eagerly")
def test_a_transformer_is_scored_by_what_it_says_of_each_window(randomize):
    config = TransformerConfig(embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=6)
    model, ids = randomize(config.build_model(VOCABULARY)), some_ids(21)

    def losses(start, skip):
        logits = ops.convert_to_numpy(model(ids[None, start : start + 6]))[0].astype("float64")
        return list((np.log(np.exp(logits).sum(-1)) - logits[np.arange(6), ids[start + 1 : start + 7]])[skip:])

    evaluator = Evaluator(model)
    assert_score(evaluator.chunked_loss(ids, 6), losses(0, 0) + losses(6, 0) + losses(12, 0))
    streaming = losses(0, 0) + losses(3, 3) + losses(6, 3) + losses(9, 3) + losses(12, 3) + losses(14, 4)
    assert_score(evaluator.streaming_loss(ids), streaming)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("context_length", [1, 2, 6, 7])
def test_windows_that_are_scored_already_are_not_scored_again(context_length, monkeypatch):
    for count in (2, 7, 8, 13, 14, 25, 40):
        ids, scored = some_ids(count), []
        evaluator = Evaluator(Toy(context_length), batch_size=3)
        windows = evaluator._windows
        monkeypatch.setattr(
            evaluator, "_windows", lambda x, *rest, run=windows, to=scored: to.append(len(x)) or run(x, *rest)
        )
        alone = evaluator.streaming_token_losses(ids)
        width = min(context_length, count - 1)
        chunked = evaluator.chunked_token_losses(ids, width)
        scored_alone = scored[0]
        scored.clear()
        np.testing.assert_allclose(evaluator.streaming_token_losses(ids, chunked=chunked), alone, rtol=1e-6)
        assert sum(scored) <= scored_alone // (1 if width % 2 and width > 1 else 2) + 1  # an odd half rarely fits
        other = evaluator.chunked_token_losses(ids[: width + 1], 1)  # of other windows: of no use
        np.testing.assert_array_equal(evaluator.streaming_token_losses(ids, chunked=other[:-1]), alone)


@pytest.mark.parametrize("context_length", [None, 4])
def test_each_loss_is_traced_once_whatever_the_length_of_the_text(context_length):
    evaluator = Evaluator(Toy(context_length), batch_size=3)
    for count in (17, 30, 34):
        ids = some_ids(count)
        losses = evaluator.chunked_token_losses(ids, 4)
        evaluator.streaming_loss(ids, chunk_length=4, chunked=losses)
    assert evaluator._independent.num_traces() == 1
    if context_length is None:
        assert evaluator._xla_step.num_traces() == 1
        assert evaluator._step.num_traces() == 0


def test_word_perplexity_spreads_the_loss_of_the_text_over_its_words():
    text = "to be,\n or  not"
    assert word_perplexity(0.5, text) == pytest.approx(np.exp(0.5 * len(text) / 4))
    assert word_perplexity(2.0, "word" * 1000) is None  # one word of 8,000 nats
    assert word_perplexity(2.0, " \n") is None


def test_too_short_a_text_is_refused():
    evaluator = Evaluator(Toy())
    with pytest.raises(ValueError, match="7 ids; expected at least 8 with sequence_length=7"):
        evaluator.chunked_loss(some_ids(7), 7)
    for model in (Toy(), Toy(context_length=4)):
        with pytest.raises(ValueError, match="1 ids; expected at least 2"):
            Evaluator(model).streaming_loss(some_ids(1))


@pytest.mark.usefixtures("eagerly")
def test_windows_are_scored_once_while_losses_are_shared(monkeypatch):
    evaluator, other, ids = Evaluator(Toy()), Evaluator(Toy()), some_ids(30)
    scored = []
    monkeypatch.setattr(Evaluator, "_windows", lambda self, x, y, total: scored.append(x.shape) or np.zeros(x.shape))
    with sharing_losses():
        for part in (ids, ids.copy(), ids[:29], ids[:22]):  # the last one has fewer windows
            assert evaluator.chunked_token_losses(part, 7).shape == ((len(part) - 1) // 7, 7)
        other.chunked_token_losses(ids, 7)
    assert scored == [(4, 7), (3, 7), (4, 7)]
    evaluator.chunked_token_losses(ids, 7)
    assert len(scored) == 4

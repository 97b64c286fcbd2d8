import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import interpretability
from keras_seq.layers import MultiHeadSelfAttention
from keras_seq.models import LSTMConfig, TransformerConfig

pytestmark = pytest.mark.any_backend
V, N = 9, 5
RANDOM = np.random.default_rng(5)
SMALL = {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 16, "context_length": 2 * N}


def test_the_scores_are_the_log_densities_of_normal_distributions():
    x = RANDOM.normal(size=(300, 3)) @ RANDOM.normal(size=(3, 3))
    labels = RANDOM.integers(3, size=300) * 10
    x += labels[:, None] * [0.1, -0.05, 0.02]
    probe = interpretability.fit_probe(x, labels)
    within = np.concatenate([x[labels == c] - x[labels == c].mean(axis=0) for c in (0, 10, 20)])
    covariance = within.T @ within / 300 + 1e-3 * x.var(axis=0).mean() * np.eye(3)
    log_density = [
        np.log(np.mean(labels == c)) - np.einsum("nd,de,ne->n", d, np.linalg.inv(covariance), d) / 2
        for c in (0, 10, 20)
        for d in [x - x[labels == c].mean(axis=0)]
    ]
    np.testing.assert_array_equal(probe.predict(x), 10 * np.argmax(log_density, axis=0))
    scores = x @ probe.weights + probe.bias
    np.testing.assert_allclose(scores[:, 1:] - scores[:, :1], (log_density[1:] - log_density[0]).T, rtol=1e-6)


def test_a_class_between_two_others_is_found():
    """By least squares on indicators it would not be (Hastie et al., 2009, section 4.2)."""
    labels = RANDOM.integers(3, size=900)
    x = np.stack([labels + RANDOM.normal(scale=0.1, size=900), RANDOM.normal(size=900)], axis=1)
    assert interpretability.fit_probe(x, labels).accuracy(x, labels) > 0.99


@pytest.mark.rare
def test_what_is_planted_is_found_and_shuffled_labels_are_not(randomize):
    """The ids at even numbers are a label that the embedding and the LSTM hold."""
    model = randomize(LSTMConfig(embedding_dim=12, units=40).build_model(V))
    ids = RANDOM.integers(V, size=(160, 16))
    scores = interpretability.probe_layers(model, ids, ids % 2 == 0)
    assert [*scores] == ["embedding", "lstm_0"]
    assert min(score.accuracy for score in scores.values()) >= 0.99
    # a probe of shuffled labels decides at random for each of 9 ids: on the mean of 30, 3 deviations are 0.09
    shuffled = [
        interpretability.probe_layers(model, ids, ids % 2 == 0, ["embedding"], seed=n)["embedding"].shuffled
        for n in range(30)
    ]
    assert np.mean(shuffled) == pytest.approx(0.5, abs=0.09)
    assert scores["lstm_0"].chance == pytest.approx(5 / 9, abs=0.07)
    noise = interpretability.probe_layers(model, ids, RANDOM.integers(2, size=ids.shape))
    assert max(score.accuracy for score in noise.values()) < 0.6


def test_labels_below_zero_do_not_count(randomize):
    model = randomize(LSTMConfig(embedding_dim=12, units=4).build_model(V))
    ids = RANDOM.integers(V, size=(60, 8))
    labels = np.where(ids == 3, -1, ids % 2)
    scores = interpretability.probe_layers(model, ids, labels, ["embedding"])
    assert scores["embedding"].accuracy >= 0.99
    held_out = labels[45:][ids[45:] != 3]
    assert scores["embedding"].chance == np.mean(held_out == np.bincount(labels[:45][ids[:45] != 3]).argmax())


def test_an_lstm_holds_the_past_and_an_embedding_does_not(randomize):
    model = randomize(LSTMConfig(embedding_dim=12, units=48).build_model(V))
    scores = interpretability.probe_past_tokens(model, distances=(0, 1, 8), num_tokens=4, count=120)
    assert scores["embedding"][0].accuracy >= 0.99
    assert scores["embedding"][1].accuracy < 0.35 < 0.9 < scores["lstm_0"][1].accuracy
    assert scores["lstm_0"][1].accuracy > scores["lstm_0"][8].accuracy
    assert scores["lstm_0"][0].chance == pytest.approx(0.25, abs=0.08)


def test_texts_fit_the_context_and_have_no_document_token():
    config = TransformerConfig(embedding_dim=4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=6)
    model = config.build_model(V)
    model.document_token = 0
    lengths, call = [], type(model).call

    class Recording(type(model)):
        def call(self, ids, **kwargs):
            lengths.append((ids.shape[1], int(keras.ops.min(ids))))
            return call(self, ids, **kwargs)

    model.__class__ = Recording
    assert interpretability.probe_past_tokens(model, (0, 5), num_tokens=V, count=4)["block_0"].keys() == {0, 5}
    assert set(lengths) == {(6, 1)}


class Copier(keras.Model):
    """Continues a repetition after its first id; before it, all ids are equally likely."""

    def call(self, ids, training=None):
        earlier = ops.pad(ops.one_hot(ids, V)[:, :-1], ((0, 0), (1, 0), (0, 0)))
        same = ops.einsum("btv,bsv->bts", ops.one_hot(ids, V), earlier)  # key s: the id before it is that of query t
        steps = ops.arange(ids.shape[1])
        same = ops.where(steps[:, None] >= steps[None], same, 0.0)
        return 20 * ops.einsum("bts,bsv->btv", same, ops.one_hot(ids, V))


def test_a_repetition_is_random_and_repeated():
    model = LSTMConfig(embedding_dim=2, units=2).build_model(V)
    ids = interpretability.repeated_sequences(model, N, count=300)
    np.testing.assert_array_equal(ids[:, :N], ids[:, N:])
    assert np.bincount(ids.reshape(-1), minlength=V) == pytest.approx(600 * N / V, rel=0.25)
    model.document_token = 0
    assert interpretability.repeated_sequences(model, N, count=300).min() == 1
    assert interpretability.repeated_sequences(model).shape == (16, 48)
    assert interpretability.repeated_sequences(TransformerConfig(**SMALL).build_model(V)).shape == (16, 2 * N)


def test_what_copies_has_the_score_1_and_what_does_not_0():
    ids = np.stack([np.random.default_rng(n).permutation(V)[:N] for n in range(8)])
    ids = np.concatenate([ids, ids], axis=1)
    assert interpretability.induction_score(Copier(), ids) == pytest.approx(1, abs=1e-4)
    untrained = LSTMConfig(embedding_dim=4, units=5).build_model(V)
    assert abs(interpretability.induction_score(untrained, ids)) < 0.05
    transformer = TransformerConfig(**SMALL).build_model(V)
    assert abs(interpretability.induction_score(transformer, ids)) < 0.05
    (scores,) = interpretability.prefix_matching_scores(transformer, ids).values()
    assert scores.shape == (2,)
    assert scores.max() < 0.3


def test_prefix_matching_is_the_weight_of_what_followed(monkeypatch):
    """One head of two attends to what followed the same id before, the other to itself."""
    model = TransformerConfig(**SMALL).build_model(V)
    i = np.arange(N - 1)
    weights = np.zeros((1, 2, 2 * N, 2 * N), "float32")
    weights[:, 0, N + i, i + 1] = 0.75
    weights[:, 1] = np.eye(2 * N)
    attend = MultiHeadSelfAttention.attend

    def given(self, *args):
        return attend(self, *args)[0], weights

    monkeypatch.setattr(MultiHeadSelfAttention, "attend", given)
    scores = interpretability.prefix_matching_scores(model, interpretability.repeated_sequences(model, N, count=1))
    np.testing.assert_allclose(scores["block_0"], [0.75, 0])


@pytest.mark.rare
@pytest.mark.parametrize("config", [TransformerConfig(**SMALL), LSTMConfig(embedding_dim=16, units=48)])
def test_after_training_on_repeats_the_score_is_high(config):
    """Of one length, so that the way back is always the same; then a hundred steps teach it."""
    model = config.build_model(V)
    if keras.backend.backend() != "tensorflow":
        pytest.skip("a training of one backend is enough")
    ids = interpretability.repeated_sequences(model, N, count=6400, seed=1)
    is_attention = model.context_length is not None
    train = ids if is_attention else np.repeat(ids[:, :2], 2, axis=1)[:, [0, 2, 1, 3]]  # a b a b
    model.compile(keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(train[:, :-1], train[:, 1:], batch_size=32, epochs=1, verbose=0)
    held_out = interpretability.repeated_sequences(model, N if is_attention else 2, count=200, seed=2)
    assert interpretability.induction_score(model, held_out) > 0.8
    if is_attention:
        (scores,) = interpretability.prefix_matching_scores(model, held_out).values()
        assert scores.max() > 0.5


def test_mistakes_are_named():
    model = LSTMConfig(embedding_dim=2, units=2).build_model(V)
    transformer, ids = TransformerConfig(**SMALL).build_model(V), np.zeros((2, 3), int)
    for call, message in (
        (lambda: interpretability.fit_probe(np.zeros((3, 2)), np.zeros(2)), r"shape \(2,\) for x of shape \(3, 2\)"),
        (lambda: interpretability.fit_probe(np.zeros((3, 2)), np.zeros(3)), r"1 class\(es\); expected at least 2"),
        (lambda: interpretability.probe_layers(model, ids, ids[:, :2]), r"shape \(2, 2\) for ids of shape \(2, 3\)"),
        (lambda: interpretability.probe_layers(model, ids[:1], ids[:1]), "B > 1"),
        (lambda: interpretability.probe_layers(model, ids, ids + 0.5), "dtype float64; expected integers or bools"),
        (lambda: interpretability.probe_layers(model, ids, ids, held_out=1.5), "held_out=1.5"),
        (lambda: interpretability.probe_layers(model, ids, np.array([[0, 1, 0], [-1, -1, -1]])), "none of at least 0"),
        (lambda: interpretability.probe_past_tokens(model, (-1,)), "distances=-1"),
        (lambda: interpretability.probe_past_tokens(model, ()), "distances is empty"),
        (lambda: interpretability.probe_past_tokens(model, (1,), num_tokens=0), "num_tokens=0"),
        (lambda: interpretability.probe_past_tokens(model, (1,), count=1), "count=1"),
        (lambda: interpretability.repeated_sequences(transformer, N + 1), "length=6; expected 2 to 5"),
        (lambda: interpretability.repeated_sequences(transformer, 1), "length=1"),
        (lambda: interpretability.repeated_sequences(transformer, count=0), "count=0"),
        (
            lambda: interpretability.induction_score(transformer, np.arange(6)[None]),
            r"shape \(1, 6\); expected \[B, 2 n\] with equal halves",
        ),
        (lambda: interpretability.induction_score(transformer, np.zeros(6, int)), r"shape \(6,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

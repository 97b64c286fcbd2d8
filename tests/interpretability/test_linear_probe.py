import numpy as np
import pytest

from keras_seq.interpretability import fit_probe, probe_layers, probe_past_tokens
from keras_seq.models import LSTMConfig, TransformerConfig

pytestmark = pytest.mark.any_backend
V = 9
RANDOM = np.random.default_rng(5)


def test_the_scores_are_the_log_densities_of_normal_distributions():
    x = RANDOM.normal(size=(300, 3)) @ RANDOM.normal(size=(3, 3))
    labels = RANDOM.integers(3, size=300) * 10
    x += labels[:, None] * [0.1, -0.05, 0.02]
    probe = fit_probe(x, labels)
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
    assert fit_probe(x, labels).accuracy(x, labels) > 0.99


@pytest.mark.rare
def test_what_is_planted_is_found_and_shuffled_labels_are_not(randomize):
    """The ids at even numbers are a label that the embedding and the LSTM hold."""
    model = randomize(LSTMConfig(embedding_dim=12, units=40).build_model(V))
    ids = RANDOM.integers(V, size=(160, 16))
    scores = probe_layers(model, ids, ids % 2 == 0)
    assert [*scores] == ["embedding", "lstm_0"]
    assert min(score.accuracy for score in scores.values()) >= 0.99
    # a probe of shuffled labels decides at random for each of 9 ids: on the mean of 30, 3 deviations are 0.09
    shuffled = [probe_layers(model, ids, ids % 2 == 0, ["embedding"], seed=n)["embedding"].shuffled for n in range(30)]
    assert np.mean(shuffled) == pytest.approx(0.5, abs=0.09)
    assert scores["lstm_0"].chance == pytest.approx(5 / 9, abs=0.07)
    noise = probe_layers(model, ids, RANDOM.integers(2, size=ids.shape))
    assert max(score.accuracy for score in noise.values()) < 0.6


def test_labels_below_zero_do_not_count(randomize):
    model = randomize(LSTMConfig(embedding_dim=12, units=4).build_model(V))
    ids = RANDOM.integers(V, size=(60, 8))
    labels = np.where(ids == 3, -1, ids % 2)
    scores = probe_layers(model, ids, labels, ["embedding"])
    assert scores["embedding"].accuracy >= 0.99
    held_out = labels[45:][ids[45:] != 3]
    assert scores["embedding"].chance == np.mean(held_out == np.bincount(labels[:45][ids[:45] != 3]).argmax())


def test_an_lstm_holds_the_past_and_an_embedding_does_not(randomize):
    model = randomize(LSTMConfig(embedding_dim=12, units=48).build_model(V))
    scores = probe_past_tokens(model, distances=(0, 1, 8), num_tokens=4, count=120)
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
            lengths.append((ids.shape[1], int(np.min(ids))))
            return call(self, ids, **kwargs)

    model.__class__ = Recording
    assert probe_past_tokens(model, (0, 5), num_tokens=V, count=4)["block_0"].keys() == {0, 5}
    assert set(lengths) == {(6, 1)}


def test_mistakes_are_named():
    model = LSTMConfig(embedding_dim=2, units=2).build_model(V)
    ids = np.zeros((2, 3), int)
    for call, message in (
        (lambda: fit_probe(np.zeros((3, 2)), np.zeros(2)), r"shape \(2,\) for x of shape \(3, 2\)"),
        (lambda: fit_probe(np.zeros((3, 2)), np.zeros(3)), r"1 class\(es\); expected at least 2"),
        (lambda: probe_layers(model, ids, ids[:, :2]), r"shape \(2, 2\) for ids of shape \(2, 3\)"),
        (lambda: probe_layers(model, ids[:1], ids[:1]), "B > 1"),
        (lambda: probe_layers(model, ids, ids + 0.5), "dtype float64; expected integers or bools"),
        (lambda: probe_layers(model, ids, ids, held_out=1.5), "held_out=1.5"),
        (lambda: probe_layers(model, ids, np.array([[0, 1, 0], [-1, -1, -1]])), "none of at least 0"),
        (lambda: probe_past_tokens(model, (-1,)), "distances=-1"),
        (lambda: probe_past_tokens(model, ()), "distances is empty"),
        (lambda: probe_past_tokens(model, (1,), num_tokens=0), "num_tokens=0"),
        (lambda: probe_past_tokens(model, (1,), count=1), "count=1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

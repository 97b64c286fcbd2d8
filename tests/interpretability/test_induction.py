import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.interpretability import induction_score, prefix_matching_scores, repeated_sequences
from keras_seq.layers import MultiHeadSelfAttention
from keras_seq.models import LSTMConfig, TransformerConfig

pytestmark = pytest.mark.any_backend
V, N = 11, 5
SMALL = {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 16, "context_length": 2 * N}


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
    ids = repeated_sequences(model, N, count=300)
    np.testing.assert_array_equal(ids[:, :N], ids[:, N:])
    assert np.bincount(ids.reshape(-1), minlength=V) == pytest.approx(600 * N / V, rel=0.25)
    model.document_token = 0
    assert repeated_sequences(model, N, count=300).min() == 1
    assert repeated_sequences(model).shape == (16, 48)
    assert repeated_sequences(TransformerConfig(**SMALL).build_model(V)).shape == (16, 2 * N)


def test_what_copies_has_the_score_1_and_what_does_not_0():
    ids = np.stack([np.random.default_rng(n).permutation(V)[:N] for n in range(8)])
    ids = np.concatenate([ids, ids], axis=1)
    assert induction_score(Copier(), ids) == pytest.approx(1, abs=1e-4)
    untrained = LSTMConfig(embedding_dim=4, units=5).build_model(V)
    assert abs(induction_score(untrained, ids)) < 0.05
    transformer = TransformerConfig(**SMALL).build_model(V)
    assert abs(induction_score(transformer, ids)) < 0.05
    (scores,) = prefix_matching_scores(transformer, ids).values()
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
    scores = prefix_matching_scores(model, repeated_sequences(model, N, count=1))
    np.testing.assert_allclose(scores["block_0"], [0.75, 0])


@pytest.mark.rare
@pytest.mark.parametrize("config", [TransformerConfig(**SMALL), LSTMConfig(embedding_dim=16, units=48)])
def test_after_training_on_repeats_the_score_is_high(config):
    """Of one length, so that the way back is always the same; then a hundred steps teach it."""
    model = config.build_model(V)
    if keras.backend.backend() != "tensorflow":
        pytest.skip("a training of one backend is enough")
    ids = repeated_sequences(model, N, count=6400, seed=1)
    is_attention = model.context_length is not None
    train = ids if is_attention else np.repeat(ids[:, :2], 2, axis=1)[:, [0, 2, 1, 3]]  # a b a b
    model.compile(keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(train[:, :-1], train[:, 1:], batch_size=32, epochs=1, verbose=0)
    held_out = repeated_sequences(model, N if is_attention else 2, count=200, seed=2)
    assert induction_score(model, held_out) > 0.8
    if is_attention:
        (scores,) = prefix_matching_scores(model, held_out).values()
        assert scores.max() > 0.5


def test_mistakes_are_named():
    model = TransformerConfig(**SMALL).build_model(V)
    for call, message in (
        (lambda: repeated_sequences(model, N + 1), "length=6; expected 2 to 5"),
        (lambda: repeated_sequences(model, 1), "length=1"),
        (lambda: repeated_sequences(model, count=0), "count=0"),
        (lambda: induction_score(model, np.arange(6)[None]), r"shape \(1, 6\); expected \[B, 2 n\] with equal halves"),
        (lambda: induction_score(model, np.zeros(6, int)), r"shape \(6,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.evaluation import Evaluator
from keras_seq.generation import TextGenerator
from keras_seq.layers.introspection import named_weights
from keras_seq.models import BiLSTMConfig, Ensemble, LanguageModel, LSTMConfig, TransformerConfig, assert_causal, lora
from keras_seq.saving import load_untrusted_model, save_model
from keras_seq.tokenizers import CharacterTokenizer

VOCABULARY = 5
IDS = np.random.default_rng(0).integers(VOCABULARY, size=(3, 8)).astype("int32")


@pytest.fixture(scope="module")
def average(randomize):
    small = LSTMConfig(embedding_dim=3, units=4), LSTMConfig(embedding_dim=2, units=6, num_layers=2)
    attends = TransformerConfig(embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=6, context_length=8)
    members = [config.build_model(VOCABULARY) for config in (*small, attends)]
    return Ensemble([randomize(member, seed=n) for n, member in enumerate(members)])


def probabilities(logits):
    e = np.exp(np.asarray(ops.convert_to_numpy(logits), "float64"))
    return e / e.sum(axis=-1, keepdims=True)


def test_it_is_the_mean_of_the_probabilities(average):
    expected = np.mean([probabilities(member(IDS)) for member in average.members], axis=0)
    logits = ops.convert_to_numpy(average(IDS))
    np.testing.assert_allclose(np.exp(logits), expected, rtol=1e-5)
    assert logits.dtype == "float32"
    alone = ops.convert_to_numpy(Ensemble(average.members[:1])(IDS))
    np.testing.assert_allclose(np.exp(alone), probabilities(average.members[0](IDS)), rtol=1e-5)


@pytest.mark.usefixtures("eagerly")
def test_its_loss_is_at_most_the_mean_of_its_members_at_every_position(average):
    text = np.random.default_rng(1).integers(VOCABULARY, size=100)
    apart = [Evaluator(member).chunked_token_losses(text, 8) for member in average.members]
    together = Evaluator(average).chunked_token_losses(text, 8)
    assert (together <= np.mean(apart, axis=0) + 1e-5).all()
    assert together.mean() < np.mean(apart) - 1e-3


def test_steps_and_a_rest_are_the_whole_pass(average):
    state, steps = average.get_initial_state(len(IDS)), []
    for t in range(4):
        logits, state = average.step(IDS[:, t : t + 1], state)
        steps.append(ops.convert_to_numpy(logits)[:, None])
    rest, _ = average(IDS[:, 4:], state=state, return_state=True)
    np.testing.assert_allclose(np.concatenate([*steps, rest], axis=1), ops.convert_to_numpy(average(IDS)), atol=1e-5)


def test_the_future_cannot_leak_and_the_shortest_context_holds(average):
    assert_causal(average, VOCABULARY, length=8)
    assert average.context_length == 8
    assert Ensemble(average.members[:2]).context_length is None


def test_extreme_logits_stay_finite():
    from keras_seq.models.ensemble import log_mean_probability

    sure, other = [[1e4, -1e4, 0.0]], [[-1e4, 1e4, 0.0]]
    mean = ops.convert_to_numpy(log_mean_probability([ops.convert_to_tensor(x, "float32") for x in (sure, other)]))
    np.testing.assert_allclose(mean[0, :2], np.log([0.5, 0.5]), rtol=1e-6)
    assert np.isfinite(mean).all()


def test_half_precision_members_give_float32():
    policies = ("mixed_bfloat16", "mixed_float16")
    mean = Ensemble([LSTMConfig(embedding_dim=3, units=4).build_model(VOCABULARY, dtype=policy) for policy in policies])
    assert keras.backend.standardize_dtype(mean(IDS).dtype) == "float32"


@pytest.mark.usefixtures("eagerly")
def test_it_comes_back_from_disk_and_writes_text(average, tmp_path):
    save_model(average, tmp_path / "model.keras")
    revived = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(revived(IDS), average(IDS))
    assert revived.context_length == average.context_length
    assert [member.name for member in revived.members] == [member.name for member in average.members]
    assert revived.count_params() == sum(member.count_params() for member in average.members)
    vocabulary = CharacterTokenizer.from_text("abcde")
    drawn = [TextGenerator(model, vocabulary)("a", 6, seed=3) for model in (average, revived)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) >= 6


def test_a_new_one_is_built(tmp_path):
    """Keras saves, loads and reads weights without a call before."""
    new = Ensemble([LSTMConfig(embedding_dim=3, units=4).build_model(5) for _ in range(2)])
    new.save(tmp_path / "new.keras")
    new.save_weights(tmp_path / "new.weights.h5")
    new.load_weights(tmp_path / "new.weights.h5")
    new.build()
    np.testing.assert_array_equal(load_untrusted_model(tmp_path / "new.keras")(IDS), new(IDS))


def test_what_cannot_be_averaged_is_refused(average):
    with pytest.raises(ValueError, match="members has 0 models; expected one or more"):
        Ensemble([])
    with pytest.raises(ValueError, match="members has 2 models; expected one or more, each listed once"):
        Ensemble([average.members[0]] * 2)
    with pytest.raises(ValueError, match="vocabulary sizes 5 and 6; expected the same size"):
        Ensemble([average.members[0], LSTMConfig(embedding_dim=3, units=4).build_model(6)])
    assert isinstance(average.members[0], LanguageModel)
    for other in (BiLSTMConfig(embedding_dim=3, units=4).build_model(VOCABULARY), "lstm"):
        with pytest.raises(ValueError, match="not a language model"):
            Ensemble([other])


@pytest.mark.filterwarnings("error::UserWarning")  # Keras's of a softmax over one position
def test_it_warns_of_nothing_and_hands_a_mask_on(average):
    mask = np.arange(8) >= [[0], [3], [1]]
    logits = Ensemble(average.members)(IDS, mask=mask)
    np.testing.assert_array_equal(ops.convert_to_numpy(logits._keras_mask), mask)
    alone = ops.convert_to_numpy(average(IDS[1:2, 3:]))
    np.testing.assert_allclose(ops.convert_to_numpy(logits)[1, 3:], alone[0], atol=1e-5)


def test_documents_begin_anew_in_each_member(average, tmp_path):
    ensemble, ids = Ensemble(average.members[:2]), IDS.copy()
    ids[:, 3], ids[:, :3], ids[:, 4:] = 4, np.minimum(ids[:, :3], 3), np.minimum(ids[:, 4:], 3)
    assert ensemble.document_token is None
    ensemble.document_token = 4
    try:
        assert [member.document_token for member in ensemble.members] == [4, 4]
        logits = ops.convert_to_numpy(ensemble(ids))
        np.testing.assert_allclose(logits[:, 3:], ops.convert_to_numpy(ensemble(ids[:, 3:])), atol=1e-6)
        save_model(ensemble, tmp_path / "model.keras")
        assert keras.saving.load_model(tmp_path / "model.keras").document_token == 4
    finally:
        ensemble.document_token = None
    assert np.abs(ops.convert_to_numpy(ensemble(ids)) - logits)[:, 3:].max() > 1e-3


def test_a_document_token_that_a_member_refuses_is_that_of_none(average, monkeypatch):
    def refuse(blocks):
        if blocks is average.members[1].blocks:
            raise ValueError("no reset_mask")

    monkeypatch.setattr("keras_seq.models.language_model.check_separates_documents", refuse)
    with pytest.raises(ValueError, match="no reset_mask"):
        average.document_token = 4
    assert [member.document_token for member in average.members] == [None] * len(average.members)


def test_members_of_one_name_have_paths_of_their_own():
    members = [LSTMConfig(4, units=5).build_model(7) for _ in range(2)]
    ensemble = Ensemble(members)
    ensemble.build((None, None))
    weights = named_weights(ensemble)
    assert len(weights) == len(ensemble.weights)
    assert {id(weight) for weight in weights.values()} == {id(weight) for weight in ensemble.weights}
    assert weights["lstm_2/head/bias"] is members[1].head.bias
    lora.set_trainable(ensemble, ["*head/bias"])
    assert [id(w) for w in ensemble.trainable_weights] == [id(member.head.bias) for member in members]

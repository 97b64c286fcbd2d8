import dataclasses
import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import TransformerBlock
from keras_seq.models import EncoderDecoder, Seq2SeqConfig, assert_causal
from tests.models.conftest import losses_of_training, numpy

VOCABULARY, D = 11, 8
SMALL = Seq2SeqConfig(
    embedding_dim=D, num_encoder_layers=1, num_decoder_layers=2, num_heads=2, feed_forward_dim=12, dropout=0.3
)
SOURCE = np.array([[3, 4, 0, 5, 0, 0], [1, 2, 3, 4, 5, 6]])  # padding in between and behind
TARGET = np.array([[7, 8, 0, 9, 0], [1, 9, 8, 7, 2]])
INPUTS = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}


@pytest.fixture(scope="module")
def model(randomize):
    return randomize(SMALL.build_model(VOCABULARY))


def run(model, encoder_token_ids, decoder_token_ids, **options):
    inputs = {"encoder_token_ids": encoder_token_ids, "decoder_token_ids": decoder_token_ids}
    return numpy(model(inputs, **options))


def test_every_field_reaches_its_layers(model):
    assert (len(model.encoder), len(model.decoder), model.dropout, model.name) == (1, 2, 0.3, "seq2seq")
    assert (model.embedding.input_dim, model.embedding.output_dim) == (VOCABULARY, D)
    for block in (*model.encoder, *model.decoder):
        assert (block.num_heads, block.feed_forward_dim, block.dropout) == (2, 12, 0.3)
        assert (block.norm_first, block.activation) == (False, keras.activations.relu)
        assert block.causal == block.cross_attention == (block in model.decoder)


def test_layers_of_keras_with_its_weights_give_the_same(model, by_keras):
    table = numpy(model.embedding.embeddings).astype("float32")
    lookup = keras.layers.Embedding(*table.shape, weights=[table])

    def embed(ids):
        positions = np.maximum(np.cumsum(ids != 0, 1) - 1, 0)[..., None]
        angles = positions / 10_000 ** (np.arange(0, D, 2) / D)
        waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(*ids.shape, D)
        return math.sqrt(D) * lookup(ids) + waves.astype("float32")

    x, y = embed(SOURCE), embed(TARGET)
    for block in model.encoder:
        x = by_keras(block)(x, SOURCE != 0)
    for block in model.decoder:
        y = by_keras(block)(y, TARGET != 0, x, SOURCE != 0)
    real = TARGET != 0
    expected = (numpy(y) @ table.T)[real]
    np.testing.assert_allclose(run(model, **INPUTS)[real], expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("policy", "tolerance"), [("float32", 1e-5), ("mixed_bfloat16", 5e-2)])
def test_stepping_equals_the_whole_pass(randomize, policy, tolerance):
    model = randomize(SMALL.build_model(VOCABULARY, dtype=policy))
    state, steps = model.get_initial_state(SOURCE, capacity=5), []
    for t in range(5):
        logits, state = model.step(TARGET[:, t : t + 1], state)
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        steps.append(numpy(logits))
    whole, real = run(model, **INPUTS), TARGET != 0
    np.testing.assert_allclose(np.stack(steps, 1)[real], whole[real], atol=tolerance * np.abs(whole).max())
    np.testing.assert_array_equal(numpy(state["position"]), real.sum(1))


def test_a_source_may_be_a_list(model):
    states = (model.get_initial_state(source, capacity=1) for source in (SOURCE, SOURCE.tolist()))
    for ours, of_a_list in zip(*map(keras.tree.flatten, states), strict=True):
        np.testing.assert_array_equal(numpy(ours), numpy(of_a_list))


def test_padding_of_the_source_changes_nothing(model):
    whole = run(model, **INPUTS)
    alone = run(model, SOURCE[:1, SOURCE[0] != 0], TARGET[:1])
    real = TARGET[0] != 0
    np.testing.assert_allclose(whole[0, real], alone[0, real], atol=1e-5 * np.abs(whole).max())


def test_padding_of_the_target_changes_nothing_at_real_positions(model):
    whole, real = run(model, **INPUTS), TARGET[0] != 0
    alone = run(model, SOURCE[:1], TARGET[:1, real])
    np.testing.assert_allclose(whole[0, real], alone[0], atol=1e-5 * np.abs(whole).max())


def test_a_source_without_a_real_id_gives_finite_logits(model):
    assert np.isfinite(run(model, np.zeros_like(SOURCE), TARGET)).all()


class OfTarget:
    """A model of the target alone, whose source is given."""

    def __init__(self, model):
        self.model, self.weights = model, model.weights

    def __call__(self, ids, training=False):
        inputs = {"encoder_token_ids": np.repeat(SOURCE[1:], len(ids), 0), "decoder_token_ids": ids}
        return self.model(inputs, training=training)


def test_the_future_of_the_target_cannot_leak_and_the_source_is_seen(model):
    assert_causal(OfTarget(model), VOCABULARY, length=6)
    changed = SOURCE.copy()
    changed[:, 0] = 9
    assert (run(model, changed, TARGET) != run(model, **INPUTS))[TARGET != 0].any(axis=-1).all()


def test_cross_attention_is_that_of_every_block_and_of_the_real_source_only(model):
    weights = [numpy(w) for w in model.cross_attention(INPUTS)]
    assert [w.shape for w in weights] == [(2, SMALL.num_heads, 5, 6)] * 2
    for w in weights:
        real = np.broadcast_to((SOURCE != 0)[:, None, None], w.shape)
        assert (w[real] > 0).all()
        assert (w[~real] == 0).all()
        np.testing.assert_allclose(w.sum(-1), 1, atol=1e-5)
    assert not np.allclose(weights[0], weights[1])


def test_cross_attention_is_what_the_whole_pass_mixes_the_source_with(model, monkeypatch):
    for block, weights in zip(model.decoder, model.cross_attention(INPUTS), strict=True):
        layer, used = block.cross_attention_layer, []
        attend = layer.attend
        monkeypatch.setattr(layer, "attend", lambda *given, a=attend, u=used: u.append(a(*given)) or u[-1])
        run(model, **INPUTS)
        np.testing.assert_allclose(numpy(weights), numpy(used[0][1]), atol=1e-6)


def test_dropout_is_on_in_training_only(model, dropout_acts_in_training_only):
    dropout_acts_in_training_only(lambda training: run(model, **INPUTS, training=training))


def test_source_target_and_output_have_one_matrix_and_no_bias(model):
    assert sum(w.shape == (VOCABULARY, D) for w in model.weights) == 1
    before, table = run(model, **INPUTS), model.embedding.embeddings
    whole = ops.convert_to_numpy(table).copy()
    table.assign(ops.where(np.arange(VOCABULARY)[:, None] == 10, 0.0, table))  # no id of the inputs
    after = run(model, **INPUTS)
    table.assign(whole)
    assert not after[..., 10].any()
    np.testing.assert_array_equal(after[..., :10], before[..., :10])


def test_from_disk_it_gives_the_same_logits_and_its_matrix_is_still_one(model, tmp_path):
    model.save(tmp_path / "model.keras")
    revived = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(run(revived, **INPUTS), run(model, **INPUTS))
    assert revived.count_params() == model.count_params() == SMALL.count_params(VOCABULARY)
    state = revived.get_initial_state(SOURCE, capacity=1)
    np.testing.assert_allclose(
        numpy(revived.step(TARGET[:, :1], state)[0]), run(model, **INPUTS)[:, 0], rtol=1e-4, atol=1e-4
    )


def test_in_half_precision_logits_and_weights_are_float32_and_its_config_gives_the_same(randomize):
    model = randomize(SMALL.build_model(VOCABULARY, dtype="mixed_bfloat16"))
    assert keras.backend.standardize_dtype(model(INPUTS).dtype) == "float32"
    assert model.decoder[0].compute_dtype == "bfloat16"
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    revived = EncoderDecoder.from_config(model.get_config())
    revived.build()
    assert revived.get_config() == model.get_config()
    revived.set_weights(model.get_weights())
    np.testing.assert_array_equal(run(revived, **INPUTS), run(model, **INPUTS))


def test_it_starts_near_what_knows_nothing():
    model = dataclasses.replace(SMALL, embedding_dim=64).build_model(VOCABULARY)
    logits = run(model, **INPUTS)[TARGET != 0]
    assert 0.3 < logits.std() < 3


def test_a_few_steps_of_training_lower_the_loss():
    model = dataclasses.replace(SMALL, num_decoder_layers=1, dropout=0.0).build_model(VOCABULARY)
    wanted, real = np.array([[8, 9, 0, 2, 0], [9, 8, 7, 2, 3]]), (TARGET != 0).astype("float32")
    losses = losses_of_training(model, INPUTS, wanted, 10, 0.02, real)
    assert losses[-1] < 0.5 * losses[0]
    model.compile(jit_compile=False)
    np.testing.assert_allclose(  # and compiled is eager
        model.predict_on_batch(INPUTS)[TARGET != 0], run(model, **INPUTS)[TARGET != 0], atol=1e-4
    )


@pytest.mark.parametrize("flaw", ["causal", "cross_attention"])
def test_a_decoder_that_is_not_causal_or_has_no_source_is_refused(flaw):
    embedding = keras.layers.ReversibleEmbedding(VOCABULARY, D)
    block = TransformerBlock(2, 12, **{"causal": True, "cross_attention": True, flaw: False}, name="flawed")
    with pytest.raises(ValueError, match=f"flawed in the decoder has .*{flaw}=False.*; expected both to be True"):
        EncoderDecoder(embedding, [], [block])


def test_what_is_out_of_range_is_said(model):
    for bad in (VOCABULARY, -1):
        unknown = np.array([[1, bad]])
        with pytest.raises(ValueError, match=rf"encoder_token_ids holds {bad}; expected numbers from 0 to 10\."):
            run(model, unknown, TARGET[:1])
        with pytest.raises(ValueError, match=rf"decoder_token_ids holds {bad}; expected numbers from 0 to 10\."):
            run(model, SOURCE[:1], unknown)
        with pytest.raises(ValueError, match=f"encoder_token_ids holds {bad}"):
            model.get_initial_state(unknown, capacity=3)
    for source, target in ((SOURCE[:, :0], TARGET), (SOURCE, TARGET[:, :0])):
        with pytest.raises(ValueError, match="at least one position"):
            run(model, source, target)
    inputs = {"encoder_token_ids": SOURCE[:1], "decoder_token_ids": TARGET}
    for call in (model, model.cross_attention):
        with pytest.raises(ValueError, match="'encoder_token_ids': 1, 'decoder_token_ids': 2"):
            call(inputs)
        with pytest.raises(ValueError, match="encoder_token_ids"):
            call({"encoder_token_ids": SOURCE})
    state = model.get_initial_state(SOURCE, capacity=1)
    with pytest.raises(ValueError, match="ids holds 11"):
        model.step(np.full((2, 1), VOCABULARY), state)
    _, state = model.step(TARGET[:, :1].tolist(), state)
    with pytest.raises(ValueError, match="capacity=1"):
        model.step(TARGET[:, :1], state)

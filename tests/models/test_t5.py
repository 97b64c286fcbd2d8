"""T5: its fields reach the layers, an id 0 of a target counts, and a file brings the shared biases back."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.generation import greedy
from keras_seq.layers import BucketedPositions, TransformerBlock
from keras_seq.models import EncoderDecoder, Seq2SeqConfig, T5Config, assert_causal
from keras_seq.saving import load_untrusted_model, save_model
from tests.models.conftest import losses_of_training, numpy
from tests.models.test_seq2seq import SOURCE, OfTarget

VOCABULARY, D = 11, 8
SMALL = T5Config(D, 2, 3, 2, 3, 12, 6, 5, dropout=0.3)
UNTIED = dataclasses.replace(SMALL, activation="geglu_tanh", tie_embeddings=False, scale_logits=False)
TARGET = np.array([[0, 8, 0, 9, 3], [0, 9, 8, 7, 2]])  # from the start id on, and an id 0 that is no padding
INPUTS = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}


@pytest.fixture(scope="module")
def models(randomize):
    return [randomize(config.build_model(VOCABULARY)) for config in (SMALL, UNTIED)]


def run(model, source, target, **options):
    return numpy(model({"encoder_token_ids": source, "decoder_token_ids": target}, **options))


@pytest.mark.parametrize("config", [SMALL, UNTIED], ids=["1.0", "1.1"])
def test_every_field_reaches_its_layers(config):
    model = config.build_model(VOCABULARY)
    assert (len(model.encoder), len(model.decoder), model.dropout, model.name) == (2, 3, 0.3, "t5")
    assert (model.embedding.input_dim, model.embedding.output_dim) == (VOCABULARY, D)
    assert (model.head is None, model.logit_scale) == ((True, D**-0.5) if config is SMALL else (False, 1.0))
    assert model.decoder_start_token_id == 0
    for stack in (model.encoder, model.decoder):
        for n, block in enumerate(stack):
            assert (block.num_heads, block.key_dim, block.feed_forward_dim, block.dropout) == (2, 3, 12, 0.3)
            assert block.positions == BucketedPositions(6, 5, scale=1.0, shared=n > 0)
            assert (block.norm_first, block.normalization, block.use_bias) == (True, "rms", False)
            assert block.activation == (keras.activations.relu if config is SMALL else "geglu_tanh")
            assert block.causal == block.cross_attention == (stack is model.decoder)
    other = dataclasses.replace(config, epsilon=0.1).build_model(VOCABULARY)
    for built, epsilon in ((model, 1e-6), (other, 0.1)):
        norms = [n for block in (*built.encoder, *built.decoder) for n in block.normalizations]
        assert {n.epsilon for n in (*norms, built.encoder_normalization, built.decoder_normalization)} == {epsilon}


@pytest.mark.parametrize(("policy", "tolerance"), [("float32", 1e-5), ("mixed_bfloat16", 5e-2)])
def test_stepping_equals_the_whole_pass(randomize, policy, tolerance):
    model = randomize(SMALL.build_model(VOCABULARY, dtype=policy))
    state, steps = model.get_initial_state(SOURCE, capacity=6), []
    for t in range(5):
        logits, state = model.step(TARGET[:, t : t + 1], state)
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        steps.append(numpy(logits))
    whole = run(model, **dict(zip(("source", "target"), INPUTS.values(), strict=True)))
    np.testing.assert_allclose(np.stack(steps, 1), whole, atol=tolerance * np.abs(whole).max())
    np.testing.assert_array_equal(numpy(state["position"]), [5, 5])


def test_padding_of_the_source_changes_nothing_and_what_stands_there_may_be_anything(randomize):
    model = randomize(
        dataclasses.replace(SMALL, decoder_start_token_id=3, tie_embeddings=False).build_model(VOCABULARY)
    )
    target = np.where(TARGET == 0, 3, TARGET)
    whole = run(model, SOURCE, target)
    short = run(model, SOURCE[:1, SOURCE[0] != 0], target[:1])
    np.testing.assert_allclose(whole[:1], short, atol=1e-5 * np.abs(whole).max())
    table = ops.convert_to_numpy(model.embedding.embeddings).copy()
    table[0] = np.nan
    model.embedding.embeddings.assign(table)
    np.testing.assert_array_equal(run(model, SOURCE, target), whole)


def test_every_id_of_a_target_counts_and_padding_behind_it_changes_nothing(models):
    model = models[0]
    whole = run(model, SOURCE, TARGET)
    other = TARGET.copy()
    other[:, 2] = 5
    assert (run(model, SOURCE, other)[0, 3:] != whole[0, 3:]).any(axis=-1).all()
    longer = run(model, SOURCE, np.pad(TARGET, ((0, 0), (0, 3))))
    np.testing.assert_allclose(longer[:, :5], whole, atol=1e-5 * np.abs(whole).max())


def test_the_future_of_the_target_cannot_leak_and_the_source_is_seen(models):
    assert_causal(OfTarget(models[0]), VOCABULARY, length=6)
    changed = SOURCE.copy()
    changed[:, 0] = 9
    assert (run(models[0], changed, TARGET) != run(models[0], SOURCE, TARGET)).any(axis=-1).all()


def test_distances_count_in_all_blocks_by_one_matrix_of_each_stack(models):
    model = models[0]
    paths = [w.path for w in model.weights if w.path.endswith("bucket_bias")]
    assert len(paths) == 2
    whole, (first, second) = run(model, SOURCE, TARGET), ([*model.encoder], [*model.decoder])
    for stack in (first, second):
        bias = stack[0].self_attention_layer.bucket_bias
        before = ops.convert_to_numpy(bias).copy()
        bias.assign(before[::-1])
        assert (run(model, SOURCE, TARGET) != whole).any()
        bias.assign(before)
    np.testing.assert_array_equal(run(model, SOURCE, TARGET), whole)


def test_from_disk_it_is_the_same(models, tmp_path):
    for config, model in zip((SMALL, UNTIED), models, strict=True):
        save_model(model, tmp_path / "model.keras")
        revived = load_untrusted_model(tmp_path / "model.keras")
        assert EncoderDecoder.from_config(model.get_config()).get_config() == model.get_config()
        np.testing.assert_array_equal(run(revived, SOURCE, TARGET), run(model, SOURCE, TARGET))
        assert revived.count_params() == model.count_params() == config.count_params(VOCABULARY)
        assert revived.decoder_start_token_id == 0


def test_the_config_of_another_encoder_decoder_has_none_of_its_keys():
    model = Seq2SeqConfig(8, 1, 1, 2, 12).build_model(VOCABULARY)
    assert model.get_config().keys() == {"name", "trainable", "dtype", "embedding", "encoder", "decoder", "dropout"}


def test_it_starts_near_what_knows_nothing():
    for options in ({}, {"tie_embeddings": False, "scale_logits": False}):
        model = T5Config(64, 2, 2, 4, 16, 128, **options).build_model(VOCABULARY)
        assert 0.3 < run(model, SOURCE, TARGET).std() < 3
        block = model.encoder[0].self_attention_layer
        x = np.random.default_rng(0).normal(size=(1, 50, 64)).astype("float32")
        q, k, _ = (numpy(part) for part in block.project_all(x))
        q = q / block.key_dim**0.5  # as attention does
        assert 0.5 < np.einsum("bthk,bshk->bhts", q, k).std() < 2


def test_a_few_steps_of_training_lower_the_loss_and_what_is_learned_is_generated():
    config = T5Config(16, 1, 2, 2, 8, 32, dropout=0.0)
    model, wanted = config.build_model(VOCABULARY), np.array([[8, 0, 9, 3, 1], [9, 8, 7, 2, 1]])
    losses = losses_of_training(model, INPUTS, wanted, 25, 0.02)
    assert losses[-1] < 0.2 * losses[0]
    state = model.get_initial_state(SOURCE, capacity=5)
    ids, _ = greedy(model.step, state, [model.decoder_start_token_id] * 2, 5, end_token_id=1)
    np.testing.assert_array_equal(ids, wanted)


def test_what_is_out_of_range_is_said():
    with pytest.raises(
        ValueError, match=r"decoder_start_token_id=11; expected an integer of at least 0 and at most 10"
    ):
        dataclasses.replace(SMALL, decoder_start_token_id=VOCABULARY).build_model(VOCABULARY)
    with pytest.raises(ValueError, match="max_distance=16; expected an integer of at least 17"):
        T5Config(max_distance=16)
    with pytest.raises(ValueError, match="num_buckets=3; expected an integer of at least 4"):
        T5Config(num_buckets=3)
    blocks = [TransformerBlock(2, 12, positions=BucketedPositions(shared=True), name=f"block_{n}") for n in range(2)]
    message = r"block_0, a first block, has positions=.*shared=True.*; expected BucketedPositions\(\.\.\.\), whose"
    with pytest.raises(ValueError, match=message):
        EncoderDecoder(keras.layers.ReversibleEmbedding(VOCABULARY, D), blocks, [])
    with pytest.raises(ValueError, match="logit_scale=0"):
        EncoderDecoder(keras.layers.ReversibleEmbedding(VOCABULARY, D), [], [], logit_scale=0)

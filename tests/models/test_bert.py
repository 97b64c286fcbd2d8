import keras
import numpy as np
import pytest

from keras_seq.models import BertConfig
from tests.models.conftest import numpy

CONTEXT, VOCABULARY, D = 9, 11, 8
SMALL = BertConfig(
    embedding_dim=D, num_layers=2, num_heads=2, feed_forward_dim=12, context_length=CONTEXT, num_segments=3, dropout=0.3
)
PADDED = np.array([[3, 4, 0, 5, 0, 0, 6], [1, 2, 3, 4, 5, 6, 7]])  # padding in between and behind
SEGMENTS = np.array([[0, 0, 2, 1, 0, 1, 1], [0, 0, 1, 1, 1, 2, 2]])


@pytest.fixture(scope="module")
def encoder(randomize):
    return randomize(SMALL.build_model(VOCABULARY))


def run(model, ids, segments=None, **options):
    segments = np.zeros_like(ids) if segments is None else segments
    outputs = model({"token_ids": ids, "segment_ids": segments}, **options)
    return numpy(outputs["sequence_output"]), numpy(outputs["pooled_output"])


def test_every_field_reaches_its_layers(encoder):
    blocks = [layer for layer in encoder.layers if layer.name.startswith("block_")]
    for block in blocks:
        assert (block.num_heads, block.feed_forward_dim, block.dropout) == (2, 12, 0.3)
        assert (block.causal, block.norm_first, block.normalization) == (False, False, "layer")
    embedding = encoder.get_layer("embedding")
    assert (len(blocks), embedding.input_dim, embedding.output_dim) == (2, VOCABULARY, D)
    assert encoder.get_layer("positions").length == encoder.get_layer("token_id_check").context_length == CONTEXT
    assert encoder.get_layer("segment_embedding").num_segments == 3
    assert encoder.get_layer("embedding_dropout").rate == 0.3


def test_layers_of_keras_with_its_weights_give_the_same(encoder, by_keras):
    real = PADDED != 0
    positions = np.maximum(np.cumsum(real, 1) - 1, 0)  # padding does not count
    x = 0
    for name, ids in (("embedding", PADDED), ("positions", positions), ("segment_embedding", SEGMENTS)):
        table = encoder.get_layer(name).embeddings
        x = x + keras.layers.Embedding(*table.shape, weights=[numpy(table)])(ids)
    normalization = keras.layers.LayerNormalization(epsilon=1e-12)
    normalization.build(x.shape)
    normalization.set_weights(encoder.get_layer("embedding_normalization").get_weights())
    x = normalization(x)
    for n in range(2):
        x = by_keras(encoder.get_layer(f"block_{n}"))(x, real)
    pooler = keras.layers.Dense(D, activation="tanh")
    pooler.build((None, D))
    pooler.set_weights(encoder.get_layer("pooler").get_weights())
    sequence, pooled = run(encoder, PADDED, SEGMENTS)
    np.testing.assert_allclose(sequence[real], numpy(x)[real], atol=2e-5)
    np.testing.assert_allclose(pooled, numpy(pooler(x[:, 0])), atol=2e-5)


def test_padding_changes_nothing_at_real_positions(encoder):
    sequence, pooled = run(encoder, PADDED, SEGMENTS)
    for row, (ids, segments) in enumerate(zip(PADDED, SEGMENTS, strict=True)):
        real = ids != 0
        alone, first = run(encoder, ids[None, real], segments[None, real])
        np.testing.assert_allclose(sequence[row, real], alone[0], atol=1e-5)
        np.testing.assert_allclose(pooled[row], first[0], atol=1e-5)


def test_a_row_without_a_real_id_is_finite_and_disturbs_no_other(encoder):
    both = run(encoder, np.stack([np.zeros_like(PADDED[0]), PADDED[1]]))[0]
    assert np.isfinite(both).all()
    np.testing.assert_allclose(both[1], run(encoder, PADDED[1:])[0][0], atol=1e-5)


def test_every_position_sees_every_other_and_the_segments(encoder):
    ids = PADDED[1:]
    sequence, _ = run(encoder, ids)
    for at in (0, 6):
        changed = ids.copy()
        changed[0, at] = 9
        assert (run(encoder, changed)[0] != sequence).any(axis=-1).all()
    segments = np.zeros_like(ids)
    segments[0, -1] = 1
    assert (run(encoder, ids, segments)[0] != sequence).any(axis=-1).all()


def test_dropout_is_on_in_training_only(encoder, dropout_acts_in_training_only):
    dropout_acts_in_training_only(lambda training: run(encoder, PADDED, SEGMENTS, training=training)[0])


def test_from_disk_it_gives_the_same(encoder, tmp_path):
    encoder.save(tmp_path / "encoder.keras")
    revived = keras.models.load_model(tmp_path / "encoder.keras")
    for a, b in zip(run(revived, PADDED, SEGMENTS), run(encoder, PADDED, SEGMENTS), strict=True):
        np.testing.assert_array_equal(a, b)


def test_half_precision_is_the_compute_dtype_of_its_layers_and_near(encoder):
    half = SMALL.build_model(VOCABULARY, dtype="mixed_bfloat16")
    half.set_weights(encoder.get_weights())
    outputs = half({"token_ids": PADDED, "segment_ids": SEGMENTS})
    assert {keras.backend.standardize_dtype(y.dtype) for y in outputs.values()} == {"bfloat16"}
    assert {v.dtype for v in half.trainable_variables} == {"float32"}
    exact = run(encoder, PADDED, SEGMENTS)[0][PADDED != 0]
    assert np.abs(numpy(outputs["sequence_output"])[PADDED != 0] - exact).mean() < 0.03


def test_ids_segments_and_lengths_out_of_range_are_said(encoder):
    for bad in (VOCABULARY, -1):
        with pytest.raises(ValueError, match=rf"token_ids holds {bad}; expected numbers from 0 to 10\."):
            run(encoder, np.array([[1, bad]]))
        with pytest.raises(ValueError, match=rf"segment\w* holds {bad}; expected numbers from 0 to 2\."):
            run(encoder, np.array([[1, 2]]), np.array([[0, bad]]))
    long = np.ones((2, CONTEXT + 1), "int32")
    with pytest.raises(
        ValueError, match=r"token_ids holds 10 ids in a row, without padding; expected at most context_length=9\."
    ):
        run(encoder, long)
    long[:, 3] = 0  # so nine are left
    assert np.isfinite(run(encoder, long)[0]).all()


def test_compiled_code_gives_the_same_and_nan_for_what_is_out_of_range(encoder):
    def compiled(ids, segments):
        return encoder.predict_on_batch({"token_ids": ids, "segment_ids": segments})["sequence_output"]

    np.testing.assert_allclose(compiled(PADDED, SEGMENTS), run(encoder, PADDED, SEGMENTS)[0], atol=1e-5)
    ones = np.ones((2, CONTEXT + 1), "int32")
    assert np.isnan(compiled(ones, 0 * ones)).any()
    assert np.isnan(compiled(ones[:, :2], np.array([[0, 3], [0, 0]]))).any()

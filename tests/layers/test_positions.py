import dataclasses
import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_seq.layers import (
    AlibiPositions,
    BucketedPositions,
    ForgettingPositions,
    LearnedPositions,
    PositionalEncoding,
    RotaryPositions,
    SegmentEmbedding,
    TransformerBlock,
)
from keras_seq.layers.attention.relative_positions import SCALINGS, distance_buckets, rotate, slopes
from tests.layers.conftest import few

numpy = ops.convert_to_numpy
LEFT = np.array([[0, 0, 1, 1], [1, 1, 1, 1]], bool)


def inputs(B=2, T=4, D=6, seed=0):
    return np.random.default_rng(seed).normal(size=(B, T, D)).astype("float32")


@pytest.mark.parametrize("D", [1, 2, 5, 6])
def test_positional_encoding_is_the_formula(D):
    x = np.zeros((1, 7, D), "float32")
    expected = [
        [(math.sin if i % 2 == 0 else math.cos)(p / 10_000 ** ((i - i % 2) / D)) for i in range(D)] for p in range(7)
    ]
    np.testing.assert_allclose(numpy(PositionalEncoding()(x))[0], expected, atol=1e-6)


def test_any_length_works():
    y = numpy(PositionalEncoding()(np.zeros((1, 12_000, 4), "float32")))
    p = np.arange(12_000)
    np.testing.assert_allclose(y[0], np.stack([np.sin(p), np.cos(p), np.sin(p / 100), np.cos(p / 100)], -1), atol=2e-3)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_positions_256_and_257_stay_distinct(dtype):
    y = numpy(ops.cast(PositionalEncoding(dtype=dtype)(np.zeros((1, 258, 4), "float32")), "float32"))[0]
    np.testing.assert_allclose(y[256:, 0], [math.sin(256), math.sin(257)], atol=4e-3)


def layers():
    return [PositionalEncoding(), LearnedPositions(9)]


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
@few
@given(cut=st.integers(1, 3))
def test_piecewise_equals_whole(layer, cut):
    x = inputs()
    whole = numpy(layer(x))
    np.testing.assert_allclose(numpy(layer(x[:, cut:], start=cut)), whole[:, cut:], atol=1e-6)
    start = ops.convert_to_tensor(cut)
    np.testing.assert_allclose(numpy(layer(x[:, cut:], start=start)), whole[:, cut:], atol=1e-6)
    by_row = numpy(layer(x[:, 1:], start=np.array([1, 0])))
    np.testing.assert_allclose(by_row[0], whole[0, 1:], atol=1e-6)
    np.testing.assert_allclose(by_row[1] - x[1, 1:], (whole - x)[1, :-1], atol=1e-6)


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
def test_padding_does_not_count(layer):
    x = inputs()
    y = numpy(layer(x, mask=LEFT))
    np.testing.assert_allclose(y[0, 2:], numpy(layer(x[:1, 2:]))[0], atol=1e-6)
    np.testing.assert_allclose(y[1], numpy(layer(x))[1], atol=1e-6)
    assert np.isfinite(y).all()
    embedding = keras.layers.Embedding(5, 6, mask_zero=True)
    ids = np.array([[0, 0, 1, 2], [4, 3, 2, 1]])
    for start in (3, np.array(3)):
        expected = numpy(layer(numpy(embedding(ids)), start=start, mask=LEFT))
        np.testing.assert_allclose(numpy(layer(embedding(ids), start=start)), expected, atol=1e-6)


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
@few
@given(cuts=st.sampled_from([[], [2], [1, 2, 3]]))
def test_pieces_with_the_state_handed_on_equal_the_whole(layer, cuts):
    x, mask = inputs(), np.array([[1, 0, 1, 1], [1, 1, 1, 0]], bool)
    for real, count in ((None, 4), (mask, 3)):
        state, pieces = layer.get_initial_state(2), []
        for start, stop in zip([0, *cuts], [*cuts, 4], strict=True):
            part = None if real is None else real[:, start:stop]
            y, state = layer(x[:, start:stop], mask=part, state=state, return_state=True)
            pieces.append(numpy(y))
        np.testing.assert_allclose(np.concatenate(pieces, 1), numpy(layer(x, mask=real)), atol=1e-6)
        np.testing.assert_array_equal(numpy(state), [count, count])


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
def test_the_state_is_the_number_of_real_positions_by_row(layer):
    x = inputs()
    assert keras.backend.standardize_dtype(layer.get_initial_state(2).dtype) == "int32"
    np.testing.assert_array_equal(numpy(layer.get_initial_state(2, capacity=9)), [0, 0])
    for start, expected in ((0, [2, 4]), (3, [5, 7]), (np.array([1, 0]), [3, 4])):
        y, state = layer(x, start=start, mask=LEFT, return_state=True)
        np.testing.assert_array_equal(numpy(state), expected)
        np.testing.assert_array_equal(numpy(y), numpy(layer(x, start=start, mask=LEFT)))
    y, state = layer(keras.KerasTensor((None, None, 6)), return_state=True)
    assert (y.shape, state.shape, state.dtype) == ((None, None, 6), (None,), "int32")


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
def test_start_and_state_together_are_refused(layer):
    with pytest.raises(ValueError, match="start=2 and a state were passed; expected only one of them"):
        layer(inputs(), start=2, state=layer.get_initial_state(2))


def test_learned_positions_are_the_rows():
    layer, x = LearnedPositions(4), inputs()
    np.testing.assert_allclose(numpy(layer(x)), x + numpy(layer.embeddings), atol=1e-6)


def test_past_the_length_is_an_error():
    layer = LearnedPositions(4)
    with pytest.raises(ValueError, match="start \\+ T = 5; expected at most length=4"):
        layer(inputs(T=5))
    with pytest.raises(ValueError, match="start \\+ T = 6; expected at most length=4"):
        layer(inputs(T=4), start=2)
    y = numpy(layer(inputs(T=4), start=ops.convert_to_tensor(2)))
    assert np.isfinite(y[:, :2]).all()
    assert np.isnan(y[:, 2:]).all()


def test_rotary_is_multiplication_by_a_complex_number():
    x = np.random.default_rng(0).normal(size=(1, 3, 2, 6))
    positions = np.array([0, 5, 11_000])
    angles = positions[:, None] * 100.0 ** (-2 * np.arange(3) / 6)
    turned = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * angles)[:, None]
    got = numpy(RotaryPositions(base=100.0).rotate(ops.convert_to_tensor(x, "float32"), positions))
    np.testing.assert_allclose(got, np.concatenate([turned.real, turned.imag], -1), atol=3e-3)
    np.testing.assert_allclose(got[:, :2], np.concatenate([turned.real, turned.imag], -1)[:, :2], atol=1e-5)


def test_a_share_of_a_head_is_rotated_as_a_head_of_its_width():
    x = ops.convert_to_tensor(np.random.default_rng(0).normal(size=(1, 3, 2, 10)), "float32")
    got = numpy(RotaryPositions(partial_rotary_factor=0.4).rotate(x, np.array([0, 5, 9])))
    np.testing.assert_array_equal(got[..., :4], numpy(RotaryPositions().rotate(x[..., :4], np.array([0, 5, 9]))))
    np.testing.assert_array_equal(got[..., 4:], numpy(x)[..., 4:])


@pytest.mark.parametrize("scaling", SCALINGS)
@few
@given(p=st.integers(0, 100), s=st.integers(0, 100), shift=st.integers(0, 1000))
def test_rotary_scores_depend_only_on_the_distance(scaling, p, s, shift):
    options = {} if scaling is None else {"scaling": scaling, "scaling_factor": 4.0, "original_context_length": 64}
    positions = RotaryPositions(**options)
    q, k = (ops.convert_to_tensor(np.random.default_rng(n).normal(size=(1, 1, 1, 8)), "float32") for n in (0, 1))

    def score(p, s):
        return float(ops.sum(positions.rotate(q, np.array([p])) * positions.rotate(k, np.array([s]))))

    assert score(p, s) == pytest.approx(score(p + shift, s + shift), abs=2e-3)


def test_positions_in_half_precision_come_from_float32_angles():
    x = ops.ones((1, 2, 1, 2), "bfloat16")
    y = numpy(ops.cast(rotate(x, np.array([256, 257]), [1.0]), "float32"))[0, :, 0, 0]
    np.testing.assert_allclose(y, [math.cos(p) - math.sin(p) for p in (256, 257)], atol=2e-2)


def test_length_scalings():
    K, base, factor, length = 16, 10_000.0, 4.0, 512
    plain = np.array(SCALINGS[None](RotaryPositions(), K))

    def frequencies(scaling):
        return np.array(SCALINGS[scaling](RotaryPositions(base, scaling, factor, length), K))

    np.testing.assert_allclose(frequencies("linear"), plain / 4)
    np.testing.assert_allclose(frequencies("ntk")[[0, -1]], plain[[0, -1]] / [1, 4])
    ratio = plain / frequencies("yarn")
    turns = length * plain / (2 * math.pi)
    assert (ratio >= 1 - 1e-12).all()
    assert (ratio <= 4 + 1e-12).all()
    assert (np.diff(ratio) >= -1e-12).all()
    np.testing.assert_allclose(ratio[turns > 32], 1)
    np.testing.assert_allclose(ratio[-1], 4)
    # the paper's ramp, by hand: it runs over the pairs 0 .. 4, so pair 1 is a quarter of the way
    low = math.floor(K * math.log(length / (32 * 2 * math.pi)) / (2 * math.log(base)))
    high = math.ceil(K * math.log(length / (2 * math.pi)) / (2 * math.log(base)))
    assert (low, high) == (0, 4)
    np.testing.assert_allclose(frequencies("yarn")[1], plain[1] * (0.75 + 0.25 / 4))
    q = ops.ones((1, 1, 1, K), "float32")
    longer = numpy(RotaryPositions(base, "yarn", factor, length).rotate(q, np.array([0])))
    np.testing.assert_allclose(longer, 0.1 * math.log(4) + 1, rtol=1e-6)


def test_alibi_slopes():
    np.testing.assert_allclose(slopes(8), [2**-n for n in range(1, 9)])
    np.testing.assert_allclose(slopes(1), [2**-8])
    # the authors' code for 12 heads: those of 8, then every other one of 16
    np.testing.assert_allclose(slopes(12), [*slopes(8), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    np.testing.assert_allclose(slopes(3), [2**-4, 2**-8, 2**-2])
    assert all(len(set(slopes(n))) == n for n in range(1, 40))


@pytest.mark.parametrize("heads", [2, 3])
def test_alibi_bias_is_the_slope_times_the_distance(heads):
    bias = numpy(AlibiPositions().bias(np.array([4, 5]), np.arange(7), heads))
    expected = [[[-m * abs(t - s) for s in range(7)] for t in (4, 5)] for m in slopes(heads)]
    np.testing.assert_allclose(bias, expected)
    by_row = AlibiPositions().bias(np.array([[4, 5]]), np.arange(7)[None], heads)
    np.testing.assert_allclose(numpy(by_row), bias[None])


def test_buckets_are_one_distance_each_and_then_ever_more():
    causal = distance_buckets(8, 16, causal=True)
    assert causal[16:].tolist() == [0] * 17  # later keys
    assert causal[16::-1].tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7]
    both = distance_buckets(8, 16, causal=False)
    assert both[16::-1].tolist() == [0, 1, 2, 2, 2, 2, *[3] * 11]
    assert both[17:].tolist() == [5, 6, 6, 6, 6, *[7] * 11]


def test_the_buckets_of_t5():
    """Where a distance lies exactly between two buckets, rounding decides."""
    torch = pytest.importorskip("torch")
    attention = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    for count, farthest in ((32, 128), (32, 20), (4, 3), (7, 64), (64, 1000), (33, 512)):
        offsets = torch.arange(-farthest, farthest + 1)
        for causal in (True, False):
            expected = attention._relative_position_bucket(offsets, not causal, count, farthest)
            np.testing.assert_array_equal(distance_buckets(count, farthest, causal), expected.numpy())


@pytest.mark.parametrize("causal", [True, False])
def test_the_bias_of_a_distance_is_that_of_its_bucket(causal):
    table, positions = np.random.default_rng(0).normal(size=(8, 3)).astype("float32"), BucketedPositions(8, 16)
    queries, keys = np.array([4, 40]), np.array([0, 3, 4, 6, 70])
    bias = numpy(positions.bias_of_distance(table, queries, keys, causal))
    buckets = distance_buckets(8, 16, causal)[np.clip(keys - queries[:, None], -16, 16) + 16]
    np.testing.assert_array_equal(bias, table[buckets].transpose(2, 0, 1))
    by_row = positions.bias_of_distance(table, np.stack([queries, queries + 1]), np.stack([keys, keys + 1]), causal)
    np.testing.assert_array_equal(numpy(by_row), np.stack([bias, bias]))


def test_biases_of_another_layer_are_no_constant_of_a_functional_model():
    x = keras.Input((None, 8))
    first = TransformerBlock(2, 16, positions=BucketedPositions(6, 5))
    second = TransformerBlock(2, 16, positions=BucketedPositions(6, 5, shared=True))
    h = first(x)
    with pytest.raises(ValueError, match=r"bucket_bias is the variable .*bucket_bias, which a functional model"):
        second(h, bucket_bias=first.self_attention_layer.bucket_bias)


@pytest.mark.parametrize(
    "positions",
    [
        *(RotaryPositions(), RotaryPositions(500.0, "yarn", 4.0, 128), AlibiPositions(), ForgettingPositions()),
        BucketedPositions(16, 90, scale=1.0, shared=True),
    ],
    ids=str,
)
def test_position_objects_revive_by_value(positions):
    revived = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(positions))
    assert revived == positions
    assert type(revived) is type(positions)
    assert not hasattr(positions, "base") or dataclasses.replace(positions, base=7.0) != revived


BACKEND = keras.backend.backend()
SEGMENTS = np.array([[0, 0, 1, 2, 2], [2, 1, 1, 0, 0]])


def test_segments_add_the_row_of_the_segment():
    layer, x = SegmentEmbedding(3), inputs(T=5)
    y = numpy(layer(x, SEGMENTS))
    np.testing.assert_allclose(y, x + numpy(layer.embeddings)[SEGMENTS], atol=1e-6)
    np.testing.assert_array_equal(numpy(layer(x, SEGMENTS.astype("int32"))), y)
    assert layer.embeddings.shape == (3, 6)


@pytest.mark.parametrize("bad", [3, -1])
def test_a_segment_out_of_range_is_an_error_or_nan_where_it_is_not_known(bad):
    layer, segments = SegmentEmbedding(3), np.where(np.arange(5) == 2, bad, SEGMENTS)
    with pytest.raises(ValueError, match=rf"segment_ids holds {bad}; expected numbers from 0 to 2\."):
        layer(inputs(T=5), segments)
    with pytest.raises(ValueError, match=f"segment_ids holds {bad}"):
        layer(inputs(T=5), ops.convert_to_tensor(segments))
    if BACKEND == "torch":
        return  # torch.compile needs a C++ compiler and a minute
    symbolic = keras.Input((None, 6)), keras.Input((None,), dtype="int32")
    model = keras.Model(symbolic, layer(*symbolic))
    model.compile(jit_compile=True)
    y = model.predict_on_batch([inputs(T=5), segments])
    np.testing.assert_array_equal(np.isnan(y).all(axis=-1), [np.arange(5) == 2] * 2)
    assert np.isnan(y).any(axis=-1).sum() == 2


def test_wrong_segments_are_refused():
    with pytest.raises(ValueError, match=r"inputs has shape \(2, 6\); expected \[B, T, D\]"):
        SegmentEmbedding(3)(inputs(T=5)[:, 0], SEGMENTS[:, 0])
    layer = SegmentEmbedding(3)
    layer(inputs(T=5), SEGMENTS)
    with pytest.raises(ValueError, match=r"expected \[B, T, 6\]"):
        layer(inputs(T=5)[..., :1], SEGMENTS)

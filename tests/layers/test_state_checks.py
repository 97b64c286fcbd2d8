"""A state, a mask or a start that cannot be meant is refused by name, not broadcast, cast or cut off."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from tests.conftest import often
from tests.layers.test_state_laws import MIXERS, SINGLE

X = np.random.default_rng(0).normal(size=(4, 6, 8)).astype("float32")
STATEFUL = SINGLE | MIXERS
each = often("make", STATEFUL, ("LSTM", "MinGRU", "SelectiveStateSpace", "GatedDeltaNet", "SLSTM"))  # one check for all


def built(make):
    layer = make()
    layer.build(X.shape)
    return layer


def cached():
    return built(lambda: layers.MultiHeadSelfAttention(2, causal=True))


@each
def test_a_state_of_other_rows_or_of_another_layer_is_refused(make):
    layer = built(make)
    for x, rows in ((X, 1), (X[:1], 4), (X, 3)):
        with pytest.raises(ValueError, match="state has the shapes"):
            layer(x, state=layer.get_initial_state(rows))
    with pytest.raises(ValueError, match="state has the shapes"):
        layer.step(X[:, 0], layer.get_initial_state(1))
    of_others = built(lambda: layers.LSTM(1)).get_initial_state(4), cached().get_initial_state(4, 8)
    for state in (7, "x", {}, (), [layer.get_initial_state(4)], *of_others):
        with pytest.raises(ValueError, match=r"state has the shapes .*; expected "):
            layer(X, state=state)


def test_a_list_is_as_good_as_a_tuple_and_a_dict_is_no_state():
    """The parts of a dict would be read in the order of their keys: c for h."""
    layer = built(lambda: layers.LSTM(5))
    h, c = layer(X[:, :2], return_state=True)[1]
    np.testing.assert_array_equal(*(ops.convert_to_numpy(layer(X, state=kind((h, c)))) for kind in (list, tuple)))
    with pytest.raises(ValueError, match="state has the shapes"):
        layer(X, state={"h": h, "c": c})


def test_a_cache_of_other_rows_heads_or_names_is_refused():
    layer = cached()
    block = built(lambda: layers.TransformerBlock(2, 8, causal=True))
    for part in (layer, block):
        for x, rows in ((X, 1), (X[:1], 4)):
            with pytest.raises(ValueError, match="state has the shapes"):
                part(x, state=part.get_initial_state(rows, capacity=8))
        for state in ({}, (), built(STATEFUL["LSTM"]).get_initial_state(4), 7, [part.get_initial_state(4, capacity=8)]):
            with pytest.raises(ValueError, match="state has the shapes"):
                part(X, state=state)
    one_head = built(lambda: layers.MultiHeadSelfAttention(2, num_key_value_heads=1, causal=True))
    with pytest.raises(ValueError, match="state has the shapes"):
        layer(X, state=one_head.get_initial_state(4, capacity=8))


def test_cross_attention_wants_a_context_of_its_rows():
    layer = layers.CrossAttention(2)
    layer.build(X.shape, X.shape)
    with pytest.raises(ValueError, match="one batch size B"):
        layer(X, context=X[:1])
    with pytest.raises(ValueError, match="state has the shapes"):
        layer(X, state=layer.project_context(X[:1]))


def test_an_additive_attention_mask_is_refused_and_not_inverted():
    layer, causal = built(lambda: layers.MultiHeadSelfAttention(2)), np.tril(np.ones((6, 6), bool))
    additive = np.where(causal, 0, -1e9).astype("float32")
    with pytest.raises(ValueError, match=r"attention_mask has the dtype float32; .*attention_mask == 0"):
        layer(X, attention_mask=additive[None])
    q = X[:, :, None]
    with pytest.raises(ValueError, match="mask has the dtype float32"):
        layers.attention(q, q, q, mask=additive)
    as_bias, as_mask = layers.attention(q, q, q, bias=additive)[0], layers.attention(q, q, q, mask=additive == 0)[0]
    np.testing.assert_allclose(ops.convert_to_numpy(as_bias), ops.convert_to_numpy(as_mask), atol=1e-6)
    for shape in ((7, 7), (3, 6, 6), (4, 3, 6, 6)):
        with pytest.raises(ValueError, match=r"attention_mask has shape .*; expected \["):
            layer(X, attention_mask=np.ones(shape, bool))


@pytest.mark.parametrize("make", [layers.PositionalEncoding, lambda: layers.LearnedPositions(9)])
def test_a_start_is_a_whole_number_and_integers_of_x_become_floats(make):
    layer = built(make)
    for start in (2.5, True, -1, 10**12, "1", None, np.float32(1)):
        with pytest.raises(ValueError, match="start"):
            layer(X, start=start)
    with pytest.raises(ValueError, match=r"start has shape \(3,\); expected \[B\], here \(4,\)"):
        layer(X, start=np.array([3, 3, 3]))
    assert np.isnan(ops.convert_to_numpy(layer(X, start=ops.convert_to_tensor(-2)))).all()
    some = ops.convert_to_numpy(layer(X, start=ops.convert_to_tensor([0, 1, -1, 2])))
    assert np.isnan(some).any(axis=(1, 2)).tolist() == [False, False, True, False]
    whole = (10 * X).astype("int32")
    a, b = (ops.convert_to_numpy(layer(x)) for x in (whole, whole.astype("float32")))
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_segments_and_reset_rows_are_what_they_say():
    layer = layers.SegmentEmbedding(2)
    with pytest.raises(ValueError, match="segment_ids has the dtype float32; expected integers"):
        layer(X, np.full((4, 6), 0.9, "float32"))
    with pytest.raises(ValueError, match=r"segment_ids has shape \(4, 1\)"):
        layer(X, np.zeros((4, 1), int))
    stateful = layers.Stateful(layers.GRU(5), 4)
    stateful(X, training=True)
    for reset_mask in (np.array([True]), np.array(True), np.ones(5, bool), np.full(4, 0.5, "float32")):
        with pytest.raises(ValueError, match="reset_mask has"):
            stateful(X, reset_mask=reset_mask, training=True)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only its graphs have sizes that are not known")
def test_where_a_graph_does_not_know_the_values_other_integers_than_0_and_1_give_nan():
    import tensorflow as tf

    attention, cross, both, positions, segments, stateful = (
        layers.MultiHeadSelfAttention(2),
        layers.CrossAttention(2),
        layers.Bidirectional(layers.GRU(3)),
        layers.PositionalEncoding(),
        layers.SegmentEmbedding(2),
        layers.Stateful(layers.GRU(5), 4),
    )
    segments(X, np.zeros((4, 6), int))
    q = X[:, :, None]
    for call, shape in (
        (lambda mask: attention(X, attention_mask=mask), (6, 6)),
        (lambda mask: layers.attention(q, q, q, mask=mask)[0], (6, 6)),
        (lambda mask: cross(X, X, context_mask=mask), (4, 6)),
        (lambda mask: cross(X, X, attention_mask=mask), (6, 6)),
        (lambda mask: both(X, mask=mask), (4, 6)),
        (lambda mask: positions(X, mask=mask), (4, 6)),
        (lambda mask: stateful(X, reset_mask=mask, training=True), (4,)),
        (lambda mask: segments(X, mask), (4, 6)),
    ):
        call(tf.ones(shape, "int32"))
        graph = tf.function(call, input_signature=[tf.TensorSpec([None] * len(shape), "int32")])
        assert np.isfinite(graph(np.ones(shape, "int32"))).all()
        for value in (-1, 2):
            assert np.isnan(graph(np.full(shape, value))).any()
    rows = tf.function(lambda start: positions(X, start=start), input_signature=[tf.TensorSpec((None,), "int32")])
    assert np.isfinite(rows([1, 2, 3, 4])).all()
    assert np.isnan(rows([1])).all()
    row = tf.function(lambda mask: segments(X, mask), input_signature=[tf.TensorSpec((None, None), "int32")])
    assert np.isnan(row(np.zeros((1, 6), "int32"))).all()


@each
def test_a_state_of_no_real_numbers_is_refused(make):
    layer = built(make)
    strings = ["str"] if keras.backend.backend() == "tensorflow" else []  # Keras refuses them itself on the others
    for dtype in ("complex64", "bool", *strings):
        state = keras.tree.map_structure(lambda part, d=dtype: np.zeros(part.shape, d), layer.get_initial_state(4))
        with pytest.raises(ValueError, match=f"state has the dtype {dtype}.*expected real numbers"):
            layer(X, state=state)
    whole = keras.tree.map_structure(lambda part: np.ones(part.shape, "int32"), layer.get_initial_state(4))
    real = keras.tree.map_structure(lambda part: np.ones(part.shape, "float64"), layer.get_initial_state(4))
    np.testing.assert_array_equal(*(ops.convert_to_numpy(layer(X, state=state)) for state in (whole, real)))


def test_the_positions_of_a_cache_are_integers_and_its_mask_booleans():
    layer = cached()
    cache = layer.get_initial_state(4, capacity=8)
    with pytest.raises(ValueError, match="state has the dtype float32; expected integers"):
        layer(X, state=cache | {"position": ops.cast(cache["position"], "float32")})
    cross = layers.CrossAttention(2)
    cross(X, X)
    state = cross.project_context(X)
    with pytest.raises(ValueError, match="state has the dtype float32; expected booleans"):
        cross(X, state=state | {"mask": ops.cast(state["mask"], "float32")})


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only it has rows of different lengths")
def test_a_ragged_x_is_refused_with_the_remedy():
    import tensorflow as tf

    with pytest.raises(ValueError, match=r"inputs is ragged; expected \[B, T, D\]: pad it"):
        layers.LSTM(5)(tf.RaggedTensor.from_tensor(X))

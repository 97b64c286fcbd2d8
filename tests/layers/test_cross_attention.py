import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import CrossAttention, TransformerBlock
from tests.layers.test_self_attention import copy_weights

B, T, S, D, C = 2, 3, 5, 8, 6
numpy = ops.convert_to_numpy


def inputs(seed=0, dtype="float32"):
    random = np.random.default_rng(seed)
    return random.normal(size=(B, T, D)).astype(dtype), random.normal(size=(B, S, C)).astype(dtype)


REAL = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], bool)


@pytest.mark.parametrize("masked", [False, True])
def test_keras_multi_head_attention_gives_the_same(randomize, masked):
    ours, theirs = CrossAttention(2, key_dim=3), keras.layers.MultiHeadAttention(2, 3)
    x, context = (ops.convert_to_tensor(a) for a in inputs())
    ours(x, context=context), theirs(x, context)
    copy_weights(randomize(ours), theirs)
    y, scores = ours(x, context=context, context_mask=REAL if masked else None, return_attention_scores=True)
    expected = theirs(
        x, context, value_mask=ops.convert_to_tensor(REAL) if masked else None, return_attention_scores=True
    )
    np.testing.assert_allclose(numpy(y), numpy(expected[0]), atol=2e-5)
    np.testing.assert_allclose(numpy(scores), numpy(expected[1]), atol=2e-6)


def test_gradients_are_those_of_finite_differences(float64, randomize, check_gradients):
    layer = CrossAttention(4, num_key_value_heads=2, dtype="float64")
    x, context = inputs(dtype="float64")
    layer(x, context=context)
    randomize(layer)
    check_gradients(layer, x, context=context, context_mask=REAL)


def test_a_mask_is_a_shorter_context():
    layer = CrossAttention(2)
    x, context = inputs()
    y = numpy(layer(x, context=context, context_mask=REAL))
    np.testing.assert_allclose(y[0], numpy(layer(x[:1], context=context[:1, REAL[0]]))[0], atol=1e-5)
    np.testing.assert_allclose(y[1], numpy(layer(x[1:], context=context[1:]))[0], atol=1e-5)


def test_a_context_that_is_all_padding_gives_zeros():
    layer = CrossAttention(2, use_bias=False)
    x, context = inputs()
    y = numpy(layer(x, context=context, context_mask=np.array([[False] * S, [True] * S])))
    assert (y[0] == 0).all()
    assert (y[1] != 0).all()


def test_a_context_without_positions_gives_zeros_and_no_queries_no_outputs():
    x, context = inputs()
    y, scores = CrossAttention(2, use_bias=False)(x, context=context[:, :0], return_attention_scores=True)
    assert (tuple(scores.shape), tuple(y.shape), numpy(y).any()) == ((B, 2, T, 0), (B, T, D), False)
    assert tuple(CrossAttention(2)(x[:, :0], context=context).shape) == (B, 0, D)


def test_keras_hands_over_the_masks_of_two_embeddings():
    layer = CrossAttention(2)
    x_ids, context_ids = np.array([[1, 2, 0], [3, 4, 5]]), np.array([[1, 2, 0, 3, 0], [1, 2, 3, 4, 5]])
    x, context = (keras.layers.Embedding(6, width, mask_zero=True) for width in (D, C))
    expected = layer(numpy(x(x_ids)), context=numpy(context(context_ids)), context_mask=REAL, mask=x_ids != 0)
    np.testing.assert_allclose(numpy(layer(x(x_ids), context=context(context_ids))), numpy(expected), atol=1e-6)


def test_the_context_is_projected_once(randomize):
    layer = CrossAttention(4, num_key_value_heads=2, use_qk_norm=True)
    x, context = inputs()
    whole, given = layer(x, context=context, context_mask=REAL, return_state=True)
    state = layer.project_context(context, context_mask=REAL)
    for name in ("key", "value", "mask"):
        np.testing.assert_array_equal(numpy(state[name]), numpy(given[name]))
    for t in range(T):
        np.testing.assert_allclose(numpy(layer(x[:, t : t + 1], state=state))[:, 0], numpy(whole)[:, t], atol=1e-5)


@pytest.mark.parametrize("shape", [(T, S), (B, T, S), (B, 2, T, S)], ids=str)
def test_an_attention_mask_combines_with_the_context_mask(shape):
    x, context = inputs()
    allowed = np.random.default_rng(0).random(shape) < 0.5
    _, scores = CrossAttention(2)(
        x, context=context, context_mask=REAL, attention_mask=allowed, return_attention_scores=True
    )
    full = np.broadcast_to(allowed[:, None] if len(shape) == 3 else allowed, (B, 2, T, S)) & REAL[:, None, None]
    np.testing.assert_array_equal(numpy(scores) > 0, full)


def test_wrong_use():
    x, context = inputs()
    with pytest.raises(ValueError, match="context=None"):
        CrossAttention(2)(x)
    with pytest.raises(ValueError, match="is not built"):
        CrossAttention(2).project_context(context)
    with pytest.raises(ValueError, match=r"context has shape \(2, 6\); expected \[B, T, D\]"):
        CrossAttention(2)(x, context=context[:, 0])
    layer = CrossAttention(2)
    layer(x, context=context)
    with pytest.raises(ValueError, match="context=None and state=None"):
        layer(x)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_position_that_a_query_may_not_see_is_not_seen_whatever_is_there(randomize, bad):
    layer = CrossAttention(2)
    x, context = inputs()
    layer(x, context=context)
    randomize(layer)
    allowed = np.ones((B, T, S), bool)
    allowed[:, 0, 1] = False
    expected = numpy(layer(x, context=context, attention_mask=allowed))
    context[:, 1] = bad
    y = numpy(layer(x, context=context, attention_mask=allowed))
    np.testing.assert_allclose(y[:, 0], expected[:, 0], atol=1e-6)
    assert np.isnan(y[:, 1:]).all()


def test_the_mask_of_an_embedding_is_in_the_state():
    layer, embedding = CrossAttention(2), keras.layers.Embedding(6, C, mask_zero=True)
    x, context = inputs()[0], embedding(np.array([[1, 2, 0, 3, 0], [1, 2, 3, 4, 5]]))
    whole = layer(x, context=context)
    state = layer.project_context(context)
    np.testing.assert_array_equal(numpy(state["mask"]), REAL)
    np.testing.assert_allclose(numpy(layer(x, state=state)), numpy(whole), atol=1e-6)
    block = TransformerBlock(2, 12, causal=True, cross_attention=True)
    whole = block(x, context=context)
    state = block.get_initial_state(B, capacity=T, context=context)
    np.testing.assert_allclose(numpy(block(x, state=state)), numpy(whole), atol=1e-5)


def test_a_context_beside_a_state_is_refused():
    layer, (x, context) = CrossAttention(2), inputs()
    layer(x, context=context)
    for name, value in (("context", context), ("context_mask", REAL)):
        with pytest.raises(ValueError, match=f"{name} was passed with a state"):
            layer(x, state=layer.project_context(context), **{name: value})

import keras
import numpy as np
import pytest

from keras_seq.callbacks import AttentionMaps
from keras_seq.callbacks.attention_maps import (
    IMAGE_PIXELS,
    MAX_HEADS,
    MAX_POSITIONS,
    TITLE_PIXELS,
    attention_weights,
    entropy,
    plot_heads,
)
from keras_seq.layers import CrossAttention, MultiHeadSelfAttention, TransformerBlock
from tests.callbacks.conftest import MODELS, VOCABULARY


@pytest.fixture
def transformer(randomize):
    return randomize(MODELS["transformer"].build_model(VOCABULARY.vocabulary_size))


def test_the_weights_are_those_that_the_block_gives_when_asked(transformer, rows):
    weights = attention_weights(transformer, rows)
    convolution, block, *_ = transformer.blocks
    x = convolution(transformer.embedding(rows), training=False)
    _, scores = block(x, training=False, return_attention_scores=True)
    assert weights.keys() == {"block_0"}
    np.testing.assert_allclose(weights["block_0"], scores["self_attention"], atol=1e-6)
    assert weights["block_0"].std() > 0.05


def test_the_model_is_as_it_was(transformer, rows):
    before = keras.ops.convert_to_numpy(transformer(rows))
    attention_weights(transformer, rows)
    assert "attend" not in transformer.blocks[1].self_attention_layer.__dict__
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(transformer(rows)), before)


def test_all_kinds_of_attention_are_found_under_names_of_their_own():
    x, context = keras.Input((5, 4)), keras.Input((3, 4))
    y = MultiHeadSelfAttention(num_heads=2, name="first")(x)
    y = TransformerBlock(num_heads=2, feed_forward_dim=4, cross_attention=True, name="block")(y, context=context)
    y = CrossAttention(num_heads=1, name="last")(y, context=context)
    model = keras.Model([x, context], y)
    random = np.random.default_rng(0)
    given = [random.normal(size=(2, length, 4)).astype("float32") for length in (5, 3)]
    shapes = {name: weights.shape for name, weights in attention_weights(model, given).items()}
    assert shapes == {
        "first": (2, 2, 5, 5),
        "block": (2, 2, 5, 5),
        "block/cross_attention": (2, 2, 5, 3),
        "last": (2, 1, 5, 3),
    }


@pytest.mark.parametrize("heads", [{"num_heads": 2}, {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 3}])
def test_the_weights_of_a_keras_layer_are_those_that_it_returns(heads):
    inputs = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    kind = keras.layers.MultiHeadAttention if "num_heads" in heads else keras.layers.GroupQueryAttention
    layer = kind(**heads, **({"key_dim": 3} if "num_heads" in heads else {}), name="attention")
    x = keras.Input((5, 4))
    model = keras.Model(x, keras.layers.Dense(2)(layer(x, x, use_causal_mask=True)))
    before = model(inputs)
    expected = layer(inputs, inputs, use_causal_mask=True, return_attention_scores=True)[1]
    np.testing.assert_allclose(attention_weights(model, inputs)["attention"], expected, atol=1e-6)
    np.testing.assert_array_equal(model(inputs), before)


def test_entropy_is_nought_for_one_and_log_n_for_n_alike():
    weights = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4, [0, 0, 0, 0]])
    np.testing.assert_allclose(entropy(weights), [0, np.log(2), np.log(4), 0])
    random = np.random.default_rng(0).dirichlet(np.ones(6), size=(3, 2))
    np.testing.assert_allclose(entropy(random), -(random * np.log(random)).sum(-1))


def test_scalars_and_histograms_are_of_all_rows(transformer, rows):
    summaries = AttentionMaps(rows).compute_summaries(transformer)
    weights = attention_weights(transformer, rows)["block_0"].astype("float64")
    batch, heads, length, _ = weights.shape
    expected = [
        -sum(w * np.log(w) for w in weights[b, h, t] if w > 0)
        for b in range(batch)
        for h in range(heads)
        for t in range(length)
    ]
    np.testing.assert_allclose(summaries.histograms["attention_entropy/block_0"].ravel(), expected, atol=1e-5)
    assert summaries.scalars == {"attention_entropy_mean/block_0": pytest.approx(np.mean(expected), rel=1e-5)}


def dark(image):
    """How much darker than white each pixel is."""
    return 255 - image.astype(int).min(axis=-1)


def test_each_head_has_an_image_that_shows_where_it_attends():
    looks_back = np.eye(6)[[0, 0, 1, 2, 3, 4]]
    looks_first = np.eye(6)[[0] * 6]
    one, other = (
        plot_heads("x", np.stack([looks_back, looks_back])),
        plot_heads("x", np.stack([looks_back, looks_first])),
    )
    assert one.dtype == np.uint8
    np.testing.assert_array_equal(one[0], other[0])
    left, right = np.split(dark(other[1])[TITLE_PIXELS:] > 200, [IMAGE_PIXELS // 4], axis=1)  # a cell is a sixth
    assert left.sum() > 10 * right.sum()
    assert (one[1] != other[1]).any()


@pytest.mark.parametrize(
    ("heads", "length"), [(1, 3), (3, 8), (4, MAX_POSITIONS), (8, MAX_POSITIONS), (12, 3 * MAX_POSITIONS)]
)
def test_images_have_the_size_of_a_card_whatever_is_in_them(heads, length):
    maps = np.tril(np.ones((heads, length, length))) / np.arange(1, length + 1)[:, None]
    images = plot_heads("block_0", maps, ["wordpiece"] * length)
    assert images.shape == (min(heads, MAX_HEADS), IMAGE_PIXELS, IMAGE_PIXELS, 3)


def test_the_text_stands_along_the_image_in_letters_that_can_be_read(transformer, rows):
    (image,) = AttentionMaps(rows, list("HHHHHHHH")).compute_summaries(transformer).images["attention/block_0"][:1]
    letters = (dark(image) > 120)[TITLE_PIXELS : TITLE_PIXELS + IMAGE_PIXELS // 8, :14].any(axis=1)  # of the first row
    assert 7 < letters.sum() < 16  # pixels of the H's height


def test_texts_that_are_two_are_not_labelled_as_one():
    source, target = (keras.Input((3,), dtype="int32", name=name) for name in ("source", "target"))
    embedding = keras.layers.Embedding(5, 4)
    y = CrossAttention(1, name="cross")(embedding(target), context=embedding(source))
    model, x = keras.Model([source, target], y), [np.array([[1, 2, 3]]), np.array([[3, 2, 1]])]
    plain, labelled = (AttentionMaps(x, tokens).compute_summaries(model).images for tokens in ((), list("HHH")))
    assert plain.keys() == labelled.keys() == {"attention/cross"}
    np.testing.assert_array_equal(plain["attention/cross"], labelled["attention/cross"])

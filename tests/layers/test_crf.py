"""A CRF against the enumeration of all taggings in float64: sums, the best one, marginals, gradients, in `fit`."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.evaluation import CRFLoss, TokenCrossEntropy, ViterbiAccuracy
from keras_seq.ops import crf
from tests.layers.conftest import BACKEND, compiled

K = 3
MASKS = np.array(
    [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 0]], bool
)
numpy = ops.convert_to_numpy


def random_layer(dtype="float64", seed=0, num_tags=K):
    layer = layers.CRF(dtype=dtype)
    layer.build((None, None, num_tags))
    random = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(random.normal(size=weight.shape))
    return layer


def emissions_and_tags(mask=MASKS, num_tags=K, seed=1):
    random = np.random.default_rng(seed)
    return random.normal(size=(*mask.shape, num_tags)), random.integers(num_tags, size=mask.shape).astype("int32")


def taggings(layer, x):
    """Every tagging of the emissions `[T, K]` of a row without padding, with its score: the definition."""
    transitions, start, end = (numpy(w).astype("float64") for w in layer.weights)
    for tags in itertools.product(range(x.shape[1]), repeat=len(x)):
        steps = sum(transitions[i, j] for i, j in itertools.pairwise(tags))
        yield tags, start[tags[0]] + end[tags[-1]] + steps + sum(x[t, tag] for t, tag in enumerate(tags))


def features(tags, num_tags=K):
    """How often a tagging has each emission, transition, first and last tag: the gradient of its score."""
    one = np.eye(num_tags)
    pairs = sum((np.outer(one[i], one[j]) for i, j in itertools.pairwise(tags)), np.zeros((num_tags, num_tags)))
    return one[list(tags)], pairs, one[tags[0]], one[tags[-1]]


def mean_features(layer, x):
    scores = dict(taggings(layer, x))
    log_z = np.logaddexp.reduce([*scores.values()])
    weighted = [[np.exp(score - log_z) * part for part in features(tags)] for tags, score in scores.items()]
    return log_z, [sum(parts) for parts in zip(*weighted, strict=True)]


def masked_potentials(layer, x, mask=MASKS):
    """The potentials of emissions that are NaN at padding."""
    return layer(np.where(mask[..., None], x, np.nan), mask=ops.convert_to_tensor(mask))


def all_results(potentials, tags):
    results = layers.crf_log_likelihood(potentials, tags), layers.crf_marginals(potentials)
    return *results, crf.crf_log_partition(potentials), *layers.viterbi(potentials)


def test_sums_marginals_and_the_best_tagging_are_those_of_all_taggings(float64, exact):
    layer, (x, tags) = random_layer(), emissions_and_tags()
    potentials = masked_potentials(layer, x)
    log_p, marginals, log_sums, best, scores = map(numpy, compiled(all_results)(potentials, tags))
    np.testing.assert_array_equal(numpy(crf.crf_mask(potentials)), MASKS)
    for row, mask in enumerate(MASKS):
        all_scores = dict(taggings(layer, x[row, mask]))
        log_z, (expected, *_) = mean_features(layer, x[row, mask])
        np.testing.assert_allclose(log_sums[row], log_z, **exact)
        np.testing.assert_allclose(log_p[row], all_scores[tuple(tags[row, mask])] - log_z, **exact)
        np.testing.assert_allclose(marginals[row, mask], expected, **exact)
        likeliest = max(all_scores, key=all_scores.get)
        assert best[row, mask].tolist() == [*likeliest]
        np.testing.assert_allclose(scores[row], all_scores[likeliest], **exact)
    assert (marginals[~MASKS] == 0).all()
    assert (best[~MASKS] == -1).all()


def test_gradients_are_expected_features_less_those_of_the_tags(float64, exact, gradients):
    layer, (x, tags) = random_layer(), emissions_and_tags()
    mask = ops.convert_to_tensor(MASKS)

    @compiled
    def log_p(values):
        potentials, _ = layer.stateless_call(values[:3], [], values[3], mask=mask)
        return ops.sum(layers.crf_log_likelihood(potentials, tags))

    padded = np.where(MASKS[..., None], x, np.nan)
    *of_weights, of_x = gradients(log_p, [*map(numpy, layer.weights), padded])
    expected = [np.zeros((K, K)), np.zeros(K), np.zeros(K)]
    for row, mask in enumerate(MASKS):
        _, means = mean_features(layer, x[row, mask])
        differences = [own - mean for own, mean in zip(features(tags[row, mask]), means, strict=True)]
        np.testing.assert_allclose(of_x[row, mask], differences[0], **exact)
        expected = [total + one for total, one in zip(expected, differences[1:], strict=True)]
    assert (of_x[~MASKS] == 0).all()
    for gradient, value in zip(of_weights, expected, strict=True):
        np.testing.assert_allclose(gradient, value, **exact)


def test_a_masked_row_is_the_shorter_row_and_an_empty_one_costs_nothing():
    layer, (x, tags) = random_layer("float32"), emissions_and_tags()
    program, row, mask = compiled(all_results), 3, MASKS[3]
    results = map(numpy, program(masked_potentials(layer, x), tags))
    short = map(numpy, program(layer(x[row : row + 1, mask]), tags[row : row + 1, mask]))
    for got, expected in zip(results, short, strict=True):
        np.testing.assert_allclose(got[row, mask] if got.ndim > 1 else got[row], expected[0], atol=1e-5)
    log_p, marginals, log_sums, _, scores = map(numpy, program(masked_potentials(layer, x, MASKS & False), tags))
    assert not any(each.any() for each in (log_p, marginals, log_sums, scores))


def test_an_unknown_tag_is_any_tag_and_a_tag_too_large_is_nan():
    layer, (x, tags) = random_layer("float32"), emissions_and_tags()
    potentials = layer(x)
    unknown, each = tags.copy(), []
    unknown[:, 2] = -1
    for tag in range(K):
        tags[:, 2] = tag
        each.append(numpy(layers.crf_log_likelihood(potentials, tags)))
    log_p = numpy(layers.crf_log_likelihood(potentials, unknown))
    np.testing.assert_allclose(log_p, np.logaddexp.reduce(each), atol=1e-5)
    tags[0, 2] = K
    assert np.isnan(numpy(layers.crf_log_likelihood(potentials, tags))).tolist() == [True] + [False] * 4


def test_a_long_row_is_that_of_a_loop_in_numpy_and_keeps_its_digits():
    """Longer than what is unrolled; in float32 the marginals of its end have an error of rounding only."""
    layer = random_layer("float32", num_tags=4)
    x, tags = emissions_and_tags(np.ones((2, 80), bool), num_tags=4)
    transitions, start, end = (numpy(w).astype("float64") for w in layer.weights)
    a, best = start + x[:, 0], start + x[:, 0]
    for t in range(1, 80):
        a = np.logaddexp.reduce(a[:, :, None] + transitions, axis=1) + x[:, t]
        best = (best[:, :, None] + transitions).max(axis=1) + x[:, t]
    potentials = layer(x.astype("float32"))
    log_z = np.logaddexp.reduce(a + end, axis=1)
    _, marginals, log_sums, found, scores = map(numpy, compiled(all_results)(potentials, tags))
    np.testing.assert_allclose(log_sums, log_z, rtol=1e-6)
    np.testing.assert_allclose(scores, (best + end).max(axis=1), rtol=1e-6)
    pairs = transitions[found[:, :-1], found[:, 1:]].sum(1) + start[found[:, 0]] + end[found[:, -1]]
    np.testing.assert_allclose(np.take_along_axis(x, found[..., None], 2).sum((1, 2)) + pairs, scores, rtol=1e-5)
    np.testing.assert_allclose(marginals[:, -1], np.exp(a + end - log_z[:, None]), atol=1e-6)


@pytest.mark.slow  # `fit` below compiles the loss, too
def test_compiled_by_xla_loss_and_gradient_are_the_eager_ones():
    if BACKEND != "tensorflow":
        pytest.skip("of JAX all is compiled; torch.compile needs a C++ compiler and a minute")
    import tensorflow as tf

    layer = random_layer("float32")
    x, tags = emissions_and_tags(np.ones((2, 70), bool))

    def loss_and_more(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            potentials = layer(x)
            loss = CRFLoss()(tags, potentials)
        return loss, tape.gradient(loss, x), *layers.viterbi(potentials)

    x = tf.constant(x, "float32")
    for got, expected in zip(tf.function(loss_and_more, jit_compile=True)(x), loss_and_more(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_without_transitions_it_is_the_softmax_of_each_tag():
    x, tags = emissions_and_tags()
    model = keras.Sequential([keras.layers.Masking(np.float32("-7")), layers.CRF()])
    padded = np.where(MASKS[..., None], x, -7).astype("float32")
    losses = [CRFLoss()(tags, model(padded)), TokenCrossEntropy()(np.where(MASKS, tags, -1), padded)]
    np.testing.assert_allclose(*map(numpy, losses), rtol=1e-5)


def test_the_loss_is_a_sum_over_rows_by_the_number_of_their_tags():
    layer, (x, tags) = random_layer("float32"), emissions_and_tags()
    potentials, weights = masked_potentials(layer, x), np.array([1.0, 2.0, 0.0, 0.5, 3.0])
    each = -numpy(layers.crf_log_likelihood(potentials, tags))
    lengths = MASKS.sum(axis=1)
    np.testing.assert_allclose(numpy(CRFLoss()(tags, potentials)), each.sum() / lengths.sum(), rtol=1e-5)
    weighted = numpy(CRFLoss()(tags, potentials, weights[:, None]))
    np.testing.assert_allclose(weighted, (weights * each).sum() / (weights * lengths).sum(), rtol=1e-5)
    np.testing.assert_allclose(numpy(CRFLoss("sum")(tags, potentials)), each.sum(), rtol=1e-5)
    np.testing.assert_allclose(numpy(CRFLoss("none")(tags, potentials)), each, rtol=1e-5)
    for refused in (lambda: CRFLoss("mean"), lambda: CRFLoss()(tags, potentials, np.ones(tags.shape))):
        with pytest.raises(ValueError, match="expected"):
            refused()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float32"])
def test_potentials_are_float32_at_least(policy):
    layer, reference = random_layer(policy), random_layer("float32")
    x, _ = emissions_and_tags()
    half = ops.cast(ops.convert_to_tensor(x, "float32"), layer.compute_dtype)
    potentials, expected = layer(half), reference(ops.cast(half, "float32"))
    assert keras.backend.standardize_dtype(potentials.dtype) == "float32"
    np.testing.assert_array_equal(numpy(potentials), numpy(expected))
    assert layer(keras.KerasTensor((None, None, K), dtype=layer.compute_dtype)).dtype == "float32"


def test_the_accuracy_is_a_count_over_all_tags_of_all_batches():
    layer, accuracy = random_layer(), ViterbiAccuracy()
    x, tags = emissions_and_tags()
    tags = np.where(MASKS, tags, -1)
    tags[0, :2] = -1  # unknown: not counted
    weights, right, total = np.array([0.5, 2, 0, 1], "float32")[: len(x)], 0.0, 0.0
    weights = np.resize(weights, len(x))
    for rows in (slice(0, 1), slice(1, None)):
        potentials = layer(x[rows], mask=MASKS[rows])
        accuracy.update_state(tags[rows], potentials, weights[rows])
        likeliest = numpy(layers.ViterbiDecoder()(potentials))
        counted = (tags[rows] >= 0) * weights[rows][:, None]
        right, total = right + ((likeliest == tags[rows]) * counted).sum(), total + counted.sum()
    assert 0 < right < total
    assert float(accuracy.result()) == pytest.approx(right / total)


def test_in_fit_it_learns_what_no_emission_tells_and_is_saved(tmp_path):
    """Tags in turns: which one comes first is known at the first position only, where the others say nothing."""
    random = np.random.default_rng(0)
    length = random.integers(3, 9, size=64)
    is_tag, first = np.arange(8) < length[:, None], random.integers(2, size=64)
    tags = ((first[:, None] + np.arange(8)) % 2).astype("int32")
    ids = np.where(is_tag, 3, 0)
    ids[:, 0] = 1 + first
    token_ids = keras.Input((None,), dtype="int32")
    emissions = keras.layers.Dense(2)(keras.layers.Embedding(4, 4, mask_zero=True)(token_ids))
    model = keras.Model(token_ids, layers.CRF()(emissions))
    model.compile(keras.optimizers.Adam(0.1), CRFLoss(), metrics=[ViterbiAccuracy()])
    history = model.fit(ids, np.where(is_tag, tags, 7), batch_size=16, epochs=15, verbose=0).history  # 7 is not read
    assert history["loss"][0] > 0.4 > 10 * history["loss"][-1]
    assert history["viterbi_accuracy"][-1] == 1
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.loss, CRFLoss)
    tagger = keras.Model(loaded.input, layers.ViterbiDecoder()(loaded.output))
    assert tagger.output_shape == (None, None)
    tagger.save(tmp_path / "tagger.keras")
    again = keras.saving.load_model(tmp_path / "tagger.keras")
    np.testing.assert_array_equal(numpy(again(ids)), np.where(is_tag, tags, -1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layers.CRF()(np.zeros((2, 3, 1), "float32")), "at least 2 tags"),
        (lambda: layers.CRF()(np.zeros((2, 3), "float32")), r"\[B, T, D\]"),
        (lambda: layers.viterbi(np.zeros((2, 3, 4), "float32")), r"\[B, T, K, K\]"),
        (lambda: layers.crf_marginals(np.zeros((2, 0, 4, 4), "float32")), "T > 0"),
        (lambda: layers.crf_log_likelihood(np.zeros((2, 3, 4, 4), "float32"), np.zeros((2, 3))), "integers"),
        (lambda: layers.crf_log_likelihood(np.zeros((2, 3, 4, 4), "float32"), np.zeros((2, 4), int)), "tags has shape"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()

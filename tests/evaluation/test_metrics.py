import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_seq.evaluation.losses import TokenCrossEntropy, token_losses
from keras_seq.evaluation.metrics import BitsPerCharacter, Perplexity, two_sum

V = 6
CHARACTERS = [0, 1, 1, 2, 3, 5]
SHAPES = [(2, 7), (5, 3), (1, 1), (4, 9)]
METRICS = {"perplexity": Perplexity, "bits_per_character": lambda **options: BitsPerCharacter(CHARACTERS, **options)}


def ragged(seed=0):
    """Batches of different sizes: targets, logits, mask, weights."""
    random = np.random.default_rng(seed)
    for place, shape in enumerate(SHAPES):
        logits = random.normal(size=(*shape, V), scale=1 + place).astype("float32")
        mask = random.random(shape) < 0.3 * (1 + place)
        yield random.integers(V, size=shape), logits, mask, random.uniform(0.5, 2, size=shape).astype("float32")


def oracle(batches):
    """`(perplexity, bits per character)` of all tokens at once, in float64, from (targets, logits, weights)."""
    total = tokens = characters = 0.0
    for targets, logits, weights in batches:
        z = logits.astype("float64")
        each = np.log(np.exp(z).sum(-1)) - np.take_along_axis(z, targets[..., None], -1)[..., 0]
        total, tokens = total + (weights * each).sum(), tokens + weights.sum()
        characters += (weights * np.array(CHARACTERS)[targets]).sum()
    return {"perplexity": np.exp(total / tokens), "bits_per_character": total / np.log(2) / characters}


def masked(logits, mask):
    logits = ops.convert_to_tensor(logits)
    logits._keras_mask = ops.convert_to_tensor(mask)  # where Keras keeps the mask of an output
    return logits


@pytest.mark.parametrize("name", METRICS)
def test_masks_weights_and_ignored_ids_count_nowhere_or_everywhere(name):
    metric = METRICS[name](ignore_class=2)
    for targets, logits, mask, weights in ragged():
        metric.update_state(targets, masked(logits, mask), sample_weight=weights)
    expected = oracle((t, z, w * m * (t != 2)) for t, z, m, w in ragged())[name]
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", METRICS)
def test_padding_may_hold_anything(name):
    metric, clean = METRICS[name](ignore_class=-7), METRICS[name]()
    for targets, logits, mask, _ in ragged():
        dirty = np.where(mask[..., None], logits, np.float32("nan"))
        metric.update_state(np.where(mask, targets, -7), dirty)
        clean.update_state(np.where(mask, targets, 10**6), masked(logits, mask))
    expected = oracle((t, z, m.astype(float)) for t, z, m, _ in ragged())[name]
    assert float(metric.result()) == float(clean.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.any_backend
def test_in_fit_and_evaluate_mask_and_weights_count_over_batches_of_different_sizes(randomize):
    """Targets at padding are out of range on purpose: they must not be read."""
    model = keras.Sequential(
        [keras.Input((4,), dtype="int32"), keras.layers.Embedding(V, 3, mask_zero=True), keras.layers.Dense(V)]
    )
    randomize(model, scale=1.0)
    x, y = (np.random.default_rng(seed).integers(V, size=(7, 4)) for seed in (1, 2))
    logits, real, weights = ops.convert_to_numpy(model(x)), x > 0, np.random.default_rng(3).uniform(0.5, 2, size=(7, 1))
    plain, weighted = (oracle([(y, logits, w)]) for w in (real.astype(float), real * weights))
    expected = {**plain, "weighted": weighted["perplexity"]}
    model.compile(
        keras.optimizers.SGD(0.0),
        TokenCrossEntropy(),
        metrics=[Perplexity(), BitsPerCharacter(CHARACTERS)],
        weighted_metrics=[Perplexity(name="weighted")],
    )
    options = {"batch_size": 3, "sample_weight": np.repeat(weights, 4, axis=1), "verbose": 0}
    evaluated = model.evaluate(x, np.where(real, y, V), return_dict=True, **options)
    fitted = model.fit(x, np.where(real, y, V), **options).history
    for name, value in expected.items():
        assert evaluated[name] == pytest.approx(value, rel=1e-5), name
        if keras.backend.backend() != "jax":  # there, Keras passes no mask to metrics in fit
            assert fitted[name][0] == pytest.approx(value, rel=1e-5), name


@pytest.mark.parametrize(("name", "empty"), [("perplexity", 1.0), ("bits_per_character", 0.0)])
def test_nothing_is_no_division_by_zero_and_a_reset_is_a_new_start(name, empty):
    metric = METRICS[name]()
    assert float(metric.result()) == empty
    targets, logits, mask, _ = next(ragged())
    metric.update_state(targets, masked(logits, np.zeros_like(mask)))
    assert float(metric.result()) == empty
    metric.update_state(targets, logits)
    first = float(metric.result())
    metric.reset_state()
    assert float(metric.result()) == empty
    metric.update_state(targets, logits)
    assert float(metric.result()) == first != empty


def test_bits_per_character_do_not_depend_on_how_the_text_is_cut():
    """A character of 2 bits, alone; and the same text in pairs, each of which has the product of the probabilities."""
    single, pairs = BitsPerCharacter([1] * 4), BitsPerCharacter([2] * 16)
    text = np.random.default_rng(0).integers(4, size=(3, 8))
    log_p = np.log([0.1, 0.2, 0.3, 0.4]).astype("float32")
    single.update_state(text, np.broadcast_to(log_p, (3, 8, 4)))
    both = (log_p[:, None] + log_p).reshape(16)
    pairs.update_state(text[:, ::2] * 4 + text[:, 1::2], np.broadcast_to(both, (3, 4, 16)))
    assert float(pairs.result()) == pytest.approx(float(single.result()), rel=1e-6)


@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.rare), True])
def test_what_rounding_takes_from_a_sum_is_kept(jit_compile):
    """2^24 + 1 is no float32: a plain sum would stand still for ever."""

    def add_one(n):
        metric.update_state([[0]], tf.zeros((1, 1, V)))
        return (n + 1,)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def add(times):
        tf.while_loop(lambda n: n < times, add_one, (0,))

    metric = Perplexity()
    metric.sums.assign([2.0**24, 2.0**24])
    add(tf.constant(300))
    assert float(metric.sums[1] - 2.0**24 + metric.compensation[1]) == 300
    assert float(metric.sums[0] - 2.0**24 + metric.compensation[0]) == pytest.approx(300 * np.log(V), rel=1e-6)


def test_two_sum_is_exact():
    random = np.random.default_rng(0)
    a, b = (random.normal(size=(2, 1000)) * 10 ** random.uniform(-3, 3, size=(2, 1000))).astype("float32")
    s, rest = two_sum(a, b)
    assert rest.any()
    np.testing.assert_array_equal(s.astype("float64") + rest, a.astype("float64") + b)


def test_under_mixed_precision_losses_are_of_the_logits_in_float32():
    targets, logits, _, _ = next(ragged())
    logits = ops.cast(logits, "bfloat16")
    metric = Perplexity(dtype="mixed_bfloat16")
    metric.update_state(targets, logits)
    assert metric.sums.dtype == "float32"
    expected = np.exp(ops.convert_to_numpy(token_losses(logits, targets)).mean())
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_from_its_config_is_the_same_metric(name):
    metric = METRICS[name](ignore_class=2, name="mine")
    revived = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(revived) is type(metric)
    assert revived.get_config() == metric.get_config()
    targets, logits, _, _ = next(ragged())
    for each in (metric, revived):
        each.update_state(targets, logits)
    assert float(metric.result()) == float(revived.result())


def test_bits_per_character_are_of_the_ids_of_the_logits():
    with pytest.raises(ValueError, match="The logits are of 4 ids; expected 5"):
        BitsPerCharacter([1] * 5).update_state([[0, 1]], np.zeros((1, 2, 4), "float32"))

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_seq.evaluation.losses import TokenCrossEntropy, token_cross_entropy, token_losses, token_weights

B, T, V = 3, 5, 7
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)


@pytest.fixture
def batch():
    random = np.random.default_rng(0)
    return random.normal(size=(B, T, V), scale=2).astype("float32"), random.integers(V, size=(B, T)).astype("int32")


def oracle(logits, targets, smoothing=0.0):
    """The definition in float64: -sum over v of q_v log softmax(z)_v, with q = (1 - e) onehot + e / V."""
    z = logits.astype("float64")
    log_p = z - z.max(-1, keepdims=True)
    log_p = log_p - np.log(np.exp(log_p).sum(-1, keepdims=True))
    q = (1 - smoothing) * np.eye(z.shape[-1])[targets] + smoothing / z.shape[-1]
    return -(q * log_p).sum(-1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_losses_are_the_definition(batch, smoothing):
    logits, targets = batch
    np.testing.assert_allclose(
        token_losses(logits, targets, smoothing), oracle(logits, targets, smoothing), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_is_softmax_minus_the_smoothed_target(batch, smoothing):
    logits, targets = batch
    z = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss = token_cross_entropy(z, targets, MASK, label_smoothing=smoothing)
    p = np.exp(logits.astype("float64"))
    p /= p.sum(-1, keepdims=True)
    expected = p - (1 - smoothing) * np.eye(V)[targets] - smoothing / V
    expected = expected * MASK[..., None] / MASK.sum()
    np.testing.assert_allclose(tape.gradient(loss, z), expected, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_sum_over_real_tokens_by_their_number(batch, smoothing):
    logits, targets = batch
    losses = oracle(logits, targets, smoothing)
    ignored = int(targets[1, 2])
    for options, tokens in (({"mask": MASK}, MASK), ({}, ...), ({"ignore_class": ignored}, targets != ignored)):
        got = token_cross_entropy(logits, targets, label_smoothing=smoothing, **options)
        assert float(got) == pytest.approx(losses[tokens].mean(), rel=1e-5), options


def test_without_a_mask_or_smoothing_it_is_that_of_keras(batch):
    logits, targets = batch
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(targets, logits)
    assert float(token_cross_entropy(logits, targets)) == pytest.approx(float(theirs), rel=1e-6)
    assert float(TokenCrossEntropy()(targets, logits)) == pytest.approx(float(theirs), rel=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_half_and_double_logits_are_summed_in_float32(batch, dtype):
    logits, targets = batch
    logits = ops.cast(logits, dtype)
    expected = oracle(ops.convert_to_numpy(ops.cast(logits, "float32")), targets, 0.1)
    for got in (token_cross_entropy(logits, targets, label_smoothing=0.1), TokenCrossEntropy(0.1)(targets, logits)):
        assert got.dtype == "float32"
        assert float(got) == pytest.approx(expected.mean(), rel=1e-5)


def test_large_logits_lose_nothing(batch):
    logits, targets = batch
    logits = np.round(logits * 1024) / 1024  # so that adding 4096 is exact
    np.testing.assert_allclose(token_losses(logits + 4096, targets, 0.1), oracle(logits, targets, 0.1), rtol=1e-5)


def test_no_real_token_costs_nothing_and_has_no_gradient(batch):
    z, targets = tf.constant(batch[0]), batch[1]
    for mask, ids in ((np.zeros((B, T), bool), targets), (None, np.full((B, T), -1)), (None, np.full((B, T), 2))):
        with tf.GradientTape() as tape:
            tape.watch(z)
            loss = token_cross_entropy(z, ids, mask, ignore_class=2, label_smoothing=0.1)
        assert float(loss) == 0
        np.testing.assert_array_equal(tape.gradient(loss, z), np.zeros((B, T, V)))
        weights = None if mask is None else mask.astype("float32")
        assert float(TokenCrossEntropy(ignore_class=2)(ids, z, weights)) == 0


def test_what_stands_at_padding_is_never_looked_at(batch):
    """Neither a target that is no id, nor a model that rules the padding's id out."""
    logits, targets = batch[0].copy(), np.maximum(batch[1], 1)
    expected = oracle(logits[..., 1:], targets - 1)[MASK].mean()
    logits[..., 0] = -np.inf
    for padding in (0, -1, -100, 10**6):
        padded = np.where(MASK, targets, padding)
        for loss in (
            token_cross_entropy(logits, padded, MASK),
            TokenCrossEntropy()(padded, logits, MASK.astype("float32")),
            token_cross_entropy(logits, padded, ignore_class=padding),
            TokenCrossEntropy(ignore_class=padding)(padded, logits),
        ):
            assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(), (B,), (B, 1), (B, T)])
@pytest.mark.parametrize("reduction", ["mean_with_sample_weight", "sum", "none", None])
def test_weights_and_mask_count_in_the_sum_and_in_its_divisor(batch, shape, reduction):
    logits, targets = batch
    weights = np.random.default_rng(1).uniform(-0.5, 2, size=shape).astype("float32")  # below 0 they push away
    z = ops.convert_to_tensor(logits)
    z._keras_mask = ops.convert_to_tensor(MASK)  # where Keras keeps the mask of an output
    got = ops.convert_to_numpy(TokenCrossEntropy(0.1, ignore_class=3, reduction=reduction)(targets, z, weights))
    w = np.broadcast_to(weights[:, None] if shape == (B,) else weights, (B, T)) * MASK * (targets != 3)
    each = oracle(logits, targets, 0.1) * w
    expected = {"mean_with_sample_weight": each.sum() / w.sum(), "sum": each.sum()}.get(reduction, each)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize(("jit_compile", "weighted"), [(False, False), (True, True)])
def test_in_compile_the_mask_of_the_model_counts(randomize, jit_compile, weighted):
    """T = B on purpose: weights per row [B] must not be taken for weights per position [T]."""
    model = keras.Sequential(
        [keras.Input((3,), dtype="int32"), keras.layers.Embedding(V, 4, mask_zero=True), keras.layers.Dense(V)]
    )
    randomize(model)
    ids = np.array([[1, 2, 3], [4, 5, 0], [6, 0, 0]])
    targets = np.array([[2, 3, 4], [5, 6, -1], [1, -1, -1]])
    weights = np.array([1.0, 2.0, 5.0]) if weighted else None
    model.compile("sgd", TokenCrossEntropy(0.1), jit_compile=jit_compile)
    got = model.evaluate(ids, targets, batch_size=3, sample_weight=weights, verbose=0)
    w = (ids > 0) * (weights[:, None] if weighted else 1.0)
    expected = (oracle(model(ids).numpy(), targets, 0.1) * w).sum() / w.sum()
    assert got == pytest.approx(expected, rel=1e-5)


def test_a_loss_from_its_config_is_the_same_loss(batch):
    loss = TokenCrossEntropy(0.2, ignore_class=4, reduction="sum", name="mine")
    revived = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(revived) is TokenCrossEntropy
    assert revived.get_config() == loss.get_config()
    assert float(revived(*batch[::-1])) == float(loss(*batch[::-1]))


def test_what_does_not_belong_together_is_refused(batch):
    logits, targets = batch
    cases = [
        (lambda: token_losses(logits, targets[:, 0]), r"logits of shape \(3, 5, 7\)"),
        (lambda: token_cross_entropy(logits, targets, MASK[:, :4]), r"mask of shape \(3, 4\)"),
        (lambda: TokenCrossEntropy()(targets, logits, MASK[..., None]), r"sample_weight of shape \(3, 5, 1\)"),
        (lambda: token_weights(targets, sample_weight=np.ones(T)), r"sample_weight of shape \(5,\)"),
        (lambda: token_cross_entropy(logits, targets, label_smoothing=1.0), "label_smoothing="),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_a_mask_of_other_integers_than_0_and_1_gives_no_plausible_loss(batch):
    logits, targets = batch
    mask = MASK.astype("int32")
    compiled = tf.function(
        token_cross_entropy, input_signature=[tf.TensorSpec(v.shape, v.dtype) for v in (*batch, mask)]
    )
    np.testing.assert_allclose(compiled(logits, targets, mask), token_cross_entropy(logits, targets, MASK), rtol=1e-6)
    assert np.isnan(compiled(logits, targets, 2 * mask))
    with pytest.raises(ValueError, match="mask"):
        token_cross_entropy(logits, targets, 2 * mask)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e38])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_at_padding_are_not_read(batch, smoothing, bad):
    logits, targets = batch
    targets[MASK & (targets == 0)] = 1
    targets[~MASK] = 0
    dirty = np.where(MASK[..., None], logits, np.float32(bad))
    losses = {
        "mask": lambda z: token_cross_entropy(z, targets, MASK, label_smoothing=smoothing),
        "below zero": lambda z: ops.sum(token_losses(z, np.where(MASK, targets, -1), smoothing)),
        "ignore_class": lambda z: TokenCrossEntropy(smoothing, ignore_class=0)(targets, z),
        "sample_weight": lambda z: TokenCrossEntropy(smoothing)(targets, z, MASK.astype("float32")),
    }
    for name, loss in losses.items():
        results = []
        for values in (logits, dirty):
            z = tf.constant(values)
            with tf.GradientTape() as tape:
                tape.watch(z)
                value = loss(z)
            results.append((float(value), tape.gradient(value, z).numpy()))
        (expected, gradient), (got, dirty_gradient) = results
        assert got == expected, name
        np.testing.assert_array_equal(dirty_gradient, gradient, err_msg=name)
        assert not dirty_gradient[~MASK].any()

"""ModernBERT by loops in float64, its padding of any id, its heads, and its file. transformers: tests/pretrained."""

import dataclasses
import itertools
import math

import keras
import numpy as np
import pytest

from keras_seq import layers
from keras_seq.interpretability import attention_weights
from keras_seq.layers.introspection import named_weights
from keras_seq.models import ModernBertConfig
from tests.conftest import often
from tests.models.conftest import losses_of_training, numpy
from tests.models.test_heads import HEADS

V, D, PAD, INTERVAL, WINDOW = 11, 8, 5, 2, 2
SMALL = ModernBertConfig(
    **{"embedding_dim": D, "num_layers": 4, "num_heads": 2, "feed_forward_dim": 6, "context_length": 9},
    **{"sliding_window": WINDOW, "global_attention_interval": INTERVAL, "epsilon": 1e-3, "pad_token_id": PAD},
    **{"positions": layers.RotaryPositions(base=50.0), "local_positions": layers.RotaryPositions(base=7.0)},
)
BIASES = {"attention_bias": True, "feed_forward_bias": True, "normalization_bias": True}
IDS = np.array([[3, 4, PAD, 0, PAD, PAD, 6], [1, 2, 0, 4, 10, 6, 7]])  # padding in between; id 0 is text
REAL = IDS != PAD


def run(encoder, ids, **options):
    return numpy(encoder(ids, **options)["sequence_output"])


@pytest.fixture(scope="module")
def encoder(randomize):
    return randomize(SMALL.build_model(V))


def normalized(x, w, path):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * w[f"{path}/gamma"] + w.get(f"{path}/beta", 0)


def gelu(x):
    return x * np.vectorize(lambda v: (1 + math.erf(v / math.sqrt(2))) / 2)(x)


def dense(x, w, path):
    return x @ w[f"{path}/kernel"] + w.get(f"{path}/bias", 0)


def rotated(x, position, base):
    """Rotate the pairs of one head's vector, as complex numbers."""
    half = len(x) // 2
    turned = (x[:half] + 1j * x[half:]) * np.exp(1j * position * base ** (-np.arange(half) / half))
    return np.concatenate([turned.real, turned.imag])


def oracle(ids, w, config=SMALL):
    """The vectors of one text without padding, [T, D], by loops over heads and positions in float64."""
    heads, width = config.num_heads, D // config.num_heads
    x = normalized(w["embedding/embeddings"][ids], w, "embedding_normalization")
    for n in range(config.num_layers):
        is_global = n % INTERVAL == 0
        h = x if n == 0 else normalized(x, w, f"block_{n}/normalization")
        q, k, v = (dense(h, w, f"block_{n}/self_attention/{name}") for name in ("query", "key", "value"))
        y = np.zeros_like(x)
        for head, t in itertools.product(range(heads), range(len(ids))):
            part, base = slice(head * width, (head + 1) * width), 50.0 if is_global else 7.0
            near = [s for s in range(len(ids)) if is_global or abs(t - s) < WINDOW]
            keys = np.array([rotated(k[s, part], s, base) for s in near])
            weights = np.exp(keys @ rotated(q[t, part], t, base) / math.sqrt(width))
            y[t, part] = weights @ v[near, part] / weights.sum()
        x = x + dense(y, w, f"block_{n}/self_attention/output")
        h, path = normalized(x, w, f"feed_forward_{n}/normalization"), f"feed_forward_{n}/feed_forward"
        x = x + dense(gelu(dense(h, w, f"{path}/gate")) * dense(h, w, f"{path}/hidden"), w, f"{path}/output")
    return normalized(x, w, "normalization")


def weights_of(model):
    return {path: numpy(weight) for path, weight in named_weights(model).items()}


@pytest.mark.parametrize("options", [{}, BIASES], ids=["no biases", "biases"])
def test_it_is_the_formula_and_padding_is_no_position(randomize, options):
    config = dataclasses.replace(SMALL, **options)
    encoder = randomize(config.build_model(V, dtype="float64"))
    w, y = weights_of(encoder), run(encoder, IDS)
    assert any("beta" in path or path.endswith("bias") for path in w) == bool(options)
    for row in range(2):
        expected = oracle(IDS[row, REAL[row]], w, config)
        np.testing.assert_allclose(y[row, REAL[row]], expected, rtol=1e-6, atol=1e-6)  # angles are float32


def test_every_field_reaches_its_layers():
    config = dataclasses.replace(SMALL, dropout=0.3, activation="relu", **BIASES)
    encoder = config.build_model(V)
    attentions = [encoder.get_layer(f"block_{n}").layers[0] for n in range(4)]
    assert [layer.sliding_window for layer in attentions] == [None, WINDOW, None, WINDOW]
    assert [layer.positions.base for layer in attentions] == [50.0, 7.0, 50.0, 7.0]
    for n, attention in enumerate(attentions):
        block, feed_forward = encoder.get_layer(f"block_{n}"), encoder.get_layer(f"feed_forward_{n}").layers[0]
        assert (attention.num_heads, attention.dropout, attention.use_bias, attention.causal) == (2, 0.3, True, False)
        assert (block.dropout, block.normalization, block.center) == (0.3, "layer" if n else None, True)
        assert (feed_forward.feed_forward_dim, feed_forward.dropout, feed_forward.use_bias) == (6, 0.3, True)
        assert feed_forward.activation is keras.activations.relu
    check = encoder.get_layer("token_id_check")
    assert (check.context_length, check.pad_token_id) == (9, PAD)
    assert encoder.get_layer("embedding_dropout").rate == 0.3


def test_padding_may_be_any_id_or_none(encoder):
    without = dataclasses.replace(SMALL, pad_token_id=None).build_model(V)
    without.set_weights(encoder.get_weights())
    y = run(encoder, IDS)
    for row in range(2):
        alone = run(without, IDS[row : row + 1, REAL[row]])[0]
        np.testing.assert_allclose(alone, y[row, REAL[row]], atol=1e-5)
    assert np.abs(run(without, IDS) - y)[0, REAL[0]].max() > 1e-2
    for id in (0, 6):  # of the padded row: every other id is text
        changed = np.where(id == IDS, 9, IDS)
        assert (run(encoder, changed) != y)[(id == IDS).any(-1)].any(), id
    long = np.full((1, 12), PAD)
    long[:, :9] = 1
    assert np.isfinite(run(encoder, long)).all()
    for model, ids in ((encoder, np.ones((1, 10), int)), (without, long)):
        with pytest.raises(ValueError, match=r"holds 1\d ids in a row, without padding; expected at most context_len"):
            run(model, ids)
    with pytest.raises(ValueError, match="pad_token_id=11; expected an integer of at least 0 and at most 10"):
        dataclasses.replace(SMALL, pad_token_id=V).build_model(V)


def test_a_local_block_sees_its_window_and_a_global_one_everything(encoder):
    first, ids = IDS[1:], IDS[1:].copy()
    ids[0, 0] = 9
    assert (run(encoder, ids) != run(encoder, first)).any(-1).all()
    x = np.random.default_rng(0).normal(size=(1, 7, D)).astype("float32")
    changed = x.copy()
    changed[:, 3, 0] += 1
    block = encoder.get_layer("block_1")
    np.testing.assert_array_equal(numpy(block(x) != block(changed)).any(-1)[0], [0, 0, 1, 1, 1, 0, 0])


def test_invalid_ids_are_said_and_compiled_equals_eager(encoder):
    for bad in (V, -1):
        with pytest.raises(ValueError, match=rf"token_ids holds {bad}; expected numbers from 0 to 10\."):
            run(encoder, np.array([[1, bad]]))
    np.testing.assert_allclose(
        encoder.predict_on_batch(IDS)["sequence_output"][REAL], run(encoder, IDS)[REAL], atol=1e-5
    )


def test_half_precision_is_near(encoder):
    half = SMALL.build_model(V, dtype="mixed_bfloat16")
    half.set_weights(encoder.get_weights())
    y = half(IDS)["sequence_output"]
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    assert {v.dtype for v in half.trainable_variables} == {"float32"}
    assert np.abs(numpy(y) - run(encoder, IDS))[REAL].mean() < 0.03


@pytest.fixture(scope="module")
def with_head(randomize):
    return {name: randomize(make(SMALL.build_model(V))) for name, make in HEADS.items()}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_the_formula_of_transformers(with_head, name):
    model, w = with_head[name], weights_of(with_head[name])
    logits = numpy(model(IDS))
    for row in range(2):
        x = oracle(IDS[row, REAL[row]], w)
        x = normalized(gelu(x @ w["head/kernel"]), w, "head_normalization")
        if name == "masked_lm":
            expected = x @ w["embedding/embeddings"].T + w["logits/bias"]
        else:
            expected = dense(x, w, "classifier")
        got = logits[row] if name == "text_classifier" else logits[row, REAL[row]]
        np.testing.assert_allclose(got, expected[0] if name == "text_classifier" else expected, atol=2e-5)


@often("name", [*HEADS], ("masked_lm",))
def test_from_disk_it_gives_the_same(with_head, name, tmp_path):
    model = with_head[name]
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(keras.models.load_model(tmp_path / "model.keras")(IDS)), numpy(model(IDS)))


@pytest.mark.rare
@pytest.mark.parametrize("name", HEADS)
def test_a_few_steps_of_training_lower_the_loss(name):
    model = HEADS[name](dataclasses.replace(SMALL, num_layers=2, dropout=0.1).build_model(V))
    targets = {"masked_lm": IDS, "text_classifier": np.array([0, 2]), "token_classifier": IDS % 3}[name]
    weights = REAL.astype("float32") if name == "masked_lm" else None
    losses = losses_of_training(model, IDS, targets, 12, 0.03, weights)
    assert losses[-1] < 0.7 * losses[0]


def test_kerass_loss_leaves_the_padding_of_a_tagger_out(with_head):
    model, tags = with_head["token_classifier"], np.random.default_rng(0).integers(3, size=IDS.shape)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    losses = [model.evaluate(IDS, targets, verbose=0) for targets in (tags, np.where(REAL, tags, (tags + 1) % 3))]
    assert losses[0] == losses[1]
    assert model.evaluate(IDS, (tags + 1) % 3, verbose=0) != losses[0]


def test_attention_weights_are_those_of_windows_and_of_text(encoder):
    weights = attention_weights(encoder, IDS)
    assert [*weights] == [f"block_{n}/self_attention" for n in range(4)]
    position = np.cumsum(REAL, axis=1)
    for n, scores in enumerate(weights.values()):
        near = np.abs(position[:, :, None] - position[:, None]) < (WINDOW if n % INTERVAL else 99)
        seen = near & REAL[:, :, None] & REAL[:, None]
        np.testing.assert_array_equal((scores > 0)[:, 0][REAL], seen[REAL])


def test_wrong_encoders_are_refused():
    for make in HEADS.values():
        with pytest.raises(ValueError, match=r"expected a model of BertConfig\(...\) or ModernBertConfig\(...\)"):
            make(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))

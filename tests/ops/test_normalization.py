import numpy as np
import pytest
import tensorflow as tf

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops import xla
from keras_seq.ops.position_wise import normalize
from keras_seq.ops.position_wise import tensorflow as optimized
from tests.ops.compare import twins_called

TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 2e-2, "mixed_float16": 2e-2}


@pytest.fixture
def always(monkeypatch):
    """Few values are enough; and a list of the calls of the twin."""
    monkeypatch.setattr(xla, "MIN_FUSED_ELEMENTS", 1)
    with twins_called(normalize) as calls:
        yield calls


def random_weights(layer, shape):
    layer.build(shape)
    for n, weight in enumerate(layer.weights):
        weight.assign(np.random.default_rng(n).normal(loc=1.0, size=weight.shape))
    return layer


def value_and_gradients(layer, x, dy):
    def compute(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        return [y, *tape.gradient(y, [x, *layer.trainable_weights], output_gradients=tf.cast(dy, y.dtype))]

    return tf.function(compute)(x, dy)


KINDS = {
    "centered": layers.LayerNormalization,
    "no offset": lambda **k: layers.LayerNormalization(center=False, **k),
    "rms": layers.RMSNormalization,
}
SHAPES = [(1, 1), (3, 1), (3, 5), (2, 7, 6), (2, 3, 2, 17)]
CASES = [  # each shape with each dtype and with each kind, and each kind with each dtype
    (kind, shape, list(TOLERANCE)[(n + m) % 3]) for n, shape in enumerate(SHAPES) for m, kind in enumerate(KINDS)
]


@pytest.mark.parametrize(
    ("kind", "shape", "dtype"),
    [pytest.param(*case, marks=pytest.mark.rare if case[1] in SHAPES[1:3] else []) for case in CASES],
)
def test_values_and_gradients_are_those_of_the_reference(always, kind, shape, dtype):
    layer = random_weights(KINDS[kind](epsilon=1e-2, dtype=dtype), shape)
    random = np.random.default_rng(7)
    x, dy = (tf.constant(random.normal(loc=0.5, size=shape), layer.compute_dtype) for _ in range(2))
    got = value_and_gradients(layer, x, dy)
    [(_, (asked, *_))] = always
    assert asked.shape == shape
    with keras_seq.ops.reference():
        expected = value_and_gradients(layer, x, dy)
    assert len(always) == 1
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        ours, theirs = (np.asarray(tf.cast(v, "float64")) for v in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE[dtype] * max(np.abs(theirs).max(), 1.0))


@pytest.mark.parametrize("centered", [True, False])
def test_it_is_the_formula(always, centered):
    random = np.random.default_rng(0)
    x, gamma, beta = random.normal(size=(6, 5)), random.normal(size=5), random.normal(size=5)
    off = x - x.mean(-1, keepdims=True) * centered
    expected = gamma * off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-3) + beta
    args = [tf.constant(v, "float32") for v in (x, gamma, beta)]
    got = tf.function(lambda *args: optimized.normalize_rows(*args, 1e-3, centered))(*args)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_row_of_equal_large_numbers_is_beta(always):
    layer = random_weights(layers.LayerNormalization(), (None, 384))
    x = tf.fill((4, 384), 1000.0)
    np.testing.assert_allclose(value_and_gradients(layer, x, x)[0], np.tile(layer.beta, (4, 1)), atol=0.05)


def test_few_values_float64_and_eager_calls_go_by_the_formula():
    def can_run(shape, dtype="float32"):
        with tf.Graph().as_default():
            return optimized.is_wrong_or_slow(tf.zeros(shape, dtype), None, None, 1e-5, False)

    assert can_run((1024, 512))
    assert not can_run((1024, 511))
    assert not can_run((1024, 512), "float64")
    assert not optimized.is_wrong_or_slow(tf.zeros((1024, 512)), None, None, 1e-5, False)
    assert optimized.is_wrong_or_slow(tf.zeros((4, 2)), None, None, 1e-5, True)  # whose formula Keras's differs from


def test_layers_of_one_shape_share_one_program(always):
    random = np.random.default_rng(0)
    x, *parameters = (tf.constant(random.normal(size=size), "float32") for size in ((6, 11), (11,), (11,)))
    before = optimized._forward.experimental_get_tracing_count()

    @tf.function
    def three_layers(x):
        for _ in range(3):
            x = optimized.normalize_rows(x, *parameters, 1e-3, True)
        return x

    three_layers(x)
    assert optimized._forward.experimental_get_tracing_count() == before + 1

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import AlibiPositions, BucketedPositions, RotaryPositions, TransformerBlock
from tests.conftest import often

B, T, S, D = 2, 6, 4, 8
numpy = ops.convert_to_numpy
FLOAT64_NORMS = keras.backend.backend() == "tensorflow"  # elsewhere Keras normalizes float64 in float32


def inputs(seed=0, length=T, dtype="float32"):
    return np.random.default_rng(seed).normal(size=(B, length, D)).astype(dtype)


def oracle(block, x, context=None):
    """The wiring in NumPy over the block's own parts; norms and residuals by hand, in float64."""

    def normalize(x, n):
        w = [numpy(v) for v in block.normalizations[n].weights]
        if block.normalization == "rms":
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w[0]
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[0] + (w[1] if block.use_bias else 0)

    parts = [block.self_attention_layer]
    if context is not None:
        parts.append(lambda h: block.cross_attention_layer(h, context=context))
    for n, part in enumerate([*parts, block.feed_forward_layer]):
        x = x + numpy(part(normalize(x, n))) if block.norm_first else normalize(x + numpy(part(x)), n)
    return x


WIRINGS = [  # every three of the four settings in all their combinations
    (("layer", "rms")[norm], norm_first, cross_attention, norm ^ norm_first ^ cross_attention)
    for norm, norm_first, cross_attention in itertools.product([False, True], repeat=3)
]


@pytest.mark.parametrize(("normalization", "norm_first", "cross_attention", "use_bias"), WIRINGS)
def test_residuals_and_norms_are_wired_as_written(
    float64, randomize, normalization, norm_first, cross_attention, use_bias
):
    block = TransformerBlock(
        2, 12, norm_first=norm_first, cross_attention=cross_attention, normalization=normalization,
        use_bias=use_bias, dtype="float64",
    )  # fmt: skip
    x = inputs(dtype="float64")
    context = {"context": inputs(1, S, "float64")} if cross_attention else {}
    block(x, **context)
    randomize(block)
    tolerance = 1e-7 if FLOAT64_NORMS else 1e-5
    np.testing.assert_allclose(numpy(block(x, **context)), oracle(block, x, **context), rtol=1e-6, atol=tolerance)


BLOCKS = {
    "default": {"causal": True},
    "llama": {
        "causal": True, "normalization": "rms", "positions": RotaryPositions(), "use_qk_norm": True,
        "use_bias": False, "activation": "swiglu", "num_key_value_heads": 1,
    },
    "alibi": {
        "causal": True, "positions": AlibiPositions(), "norm_first": False, "sliding_window": 3, "activation": "geglu",
    },
    "t5": {
        "causal": True, "positions": BucketedPositions(6, 5, scale=1.0), "normalization": "rms", "use_bias": False,
        "key_dim": 3,
    },
}  # fmt: skip


@pytest.mark.skipif(not FLOAT64_NORMS, reason="Keras normalizes float64 in float32 on this backend")
@pytest.mark.parametrize(
    ("options", "cross_attention"), [("default", False), *((name, True) for name in ("llama", "alibi", "t5"))]
)
def test_gradients_are_those_of_finite_differences(float64, randomize, check_gradients, options, cross_attention):
    block = TransformerBlock(2, 5, cross_attention=cross_attention, **BLOCKS[options], dtype="float64")
    x = inputs(length=3, dtype="float64")
    context = {"context": inputs(1, S, "float64")} if cross_attention else {}
    block(x, **context)
    check_gradients(randomize(block), x, **context)


@pytest.mark.parametrize(
    ("name", "cross_attention"),
    [
        *((name, False) for name in BLOCKS),
        *(pytest.param(name, True, marks=[] if name == "default" else pytest.mark.rare) for name in BLOCKS),
    ],
)
def test_cached_equals_whole(name, cross_attention):
    block = TransformerBlock(2, 12, cross_attention=cross_attention, **BLOCKS[name])
    x, real = inputs(), np.array([[1, 1, 0, 1], [1, 1, 1, 1]], bool)
    context = {"context": inputs(1, S), "context_mask": real} if cross_attention else {}
    whole = numpy(block(x, **context))
    for cuts in ([], [2], [1, 2, 3, 4, 5]):
        state, pieces = block.get_initial_state(B, T + 1, **context), []
        for start, end in zip([0, *cuts], [*cuts, T], strict=True):
            y, state = block(x[:, start:end], state=state, return_state=True)
            pieces.append(numpy(y))
        np.testing.assert_allclose(np.concatenate(pieces, 1), whole, atol=2e-5)
    assert set(state) == {"self_attention", *(["cross_attention"] if cross_attention else [])}


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("cross_attention", [False, True])
def test_attention_scores_are_those_of_the_parts(norm_first, cross_attention):
    block = TransformerBlock(2, 12, causal=True, norm_first=norm_first, cross_attention=cross_attention)
    x, real = inputs(), np.array([[1, 1, 0, 1], [1, 1, 1, 1]], bool)
    context = {"context": inputs(1, S), "context_mask": real} if cross_attention else {}
    y, scores, state = block(x, **context, return_attention_scores=True, return_state=True)
    np.testing.assert_allclose(numpy(y), numpy(block(x, **context)), atol=2e-6)
    assert scores.keys() == state.keys()
    norms = block.normalizations
    h, expected = block.self_attention_layer(norms[0](x) if norm_first else x, return_attention_scores=True)
    np.testing.assert_allclose(numpy(scores["self_attention"]), numpy(expected), atol=1e-6)
    if cross_attention:
        x = ops.add(x, h)
        asks = norms[1 if norm_first else 0](x)
        _, expected = block.cross_attention_layer(asks, **context, return_attention_scores=True)
        np.testing.assert_allclose(numpy(scores["cross_attention"]), numpy(expected), atol=1e-6)


DTYPES = ["float32", "mixed_bfloat16", "mixed_float16"]


@often(("name", "dtype"), [*itertools.product(BLOCKS, DTYPES)], [*zip(BLOCKS, itertools.cycle(DTYPES))])
def test_the_future_cannot_leak(name, dtype):
    block = TransformerBlock(2, 12, dropout=0.2, dtype=dtype, **BLOCKS[name])
    x = inputs()
    block(x)
    start = [numpy(v) for v in block.non_trainable_variables]

    def run(x):
        keras.utils.set_random_seed(0)
        for variable, value in zip(block.non_trainable_variables, start, strict=True):
            variable.assign(value)  # the same dropout each time
        return numpy(ops.cast(block(x, training=True), "float32"))

    y = run(x)
    for t in (1, T - 1):
        changed = x.copy()
        changed[:, t:] = 100 * inputs(1)[:, t:]
        changed_y = run(changed)
        np.testing.assert_array_equal(y[:, :t], changed_y[:, :t])
        assert (y[:, t:] != changed_y[:, t:]).any()


@pytest.mark.parametrize("options", [{}, *BLOCKS.values()], ids=["encoder", *BLOCKS])
def test_a_mask_is_a_shorter_sequence(options):
    block = TransformerBlock(2, 12, **options)
    x, mask = inputs(), np.array([[0, 1, 1, 0, 1, 0], [1] * T], bool)
    y = numpy(block(x, mask=mask))
    np.testing.assert_allclose(y[0, mask[0]], numpy(block(x[:1, mask[0]]))[0], atol=2e-5)
    np.testing.assert_allclose(y[1], numpy(block(x[1:]))[0], atol=2e-5)
    assert np.isfinite(numpy(block(x, mask=np.zeros((B, T), bool)))).all()


def test_an_encoder_decoder_passes_the_masks_of_both_embeddings():
    x_ids, context_ids = np.array([[1, 2, 3, 0, 0, 0], [1] * T]), np.array([[1, 2, 0, 0], [1] * S])
    embedding = keras.layers.Embedding(5, D, mask_zero=True)
    encoder, decoder = TransformerBlock(2, 12), TransformerBlock(2, 12, causal=True, cross_attention=True)
    y = numpy(decoder(embedding(x_ids), context=encoder(embedding(context_ids))))
    x, context = numpy(embedding(x_ids)), numpy(embedding(context_ids))
    short = decoder(x[:1, :3], context=encoder(context[:1, :2]))
    np.testing.assert_allclose(y[0, :3], numpy(short)[0], atol=2e-5)
    np.testing.assert_allclose(y[1], numpy(decoder(x[1:], context=encoder(context[1:])))[0], atol=2e-5)


def test_the_scale_of_the_positions_is_that_of_both_attentions():
    block = TransformerBlock(2, 12, cross_attention=True, positions=BucketedPositions(scale=1.0))
    assert (block.self_attention_layer.scale, block.cross_attention_layer.scale) == (1.0, 1.0)
    block = TransformerBlock(2, 12, cross_attention=True, positions=RotaryPositions())
    assert (block.self_attention_layer.scale, block.cross_attention_layer.scale) == (None, None)


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_zero_residuals_start_as_the_identity(activation):
    block = TransformerBlock(2, 12, residual_initializer="zeros", cross_attention=True, activation=activation)
    x = inputs()
    np.testing.assert_array_equal(numpy(block(x, context=inputs(1, S))), x)


def test_an_attention_mask_narrows_self_attention():
    block, x = TransformerBlock(2, 12), inputs()
    only_itself = np.eye(T, dtype=bool)
    alone = np.concatenate([numpy(block(x[:, t : t + 1])) for t in range(T)], axis=1)
    np.testing.assert_allclose(numpy(block(x, attention_mask=only_itself)), alone, atol=1e-5)


def test_a_custom_activation_is_revived():
    @keras.saving.register_keras_serializable(package="test")
    def cube(x):
        return x * x * x

    block = TransformerBlock(2, 12, activation=cube)
    revived = TransformerBlock.from_config(block.get_config())
    assert revived.activation is cube
    assert revived.feed_forward_layer.activation is cube


def test_wrong_use():
    x, context = inputs(), inputs(1, S)
    with pytest.raises(ValueError, match="context was passed with cross_attention=False"):
        TransformerBlock(2, 12)(x, context=context)
    block = TransformerBlock(2, 12, causal=True, cross_attention=True)
    with pytest.raises(ValueError, match="context=None"):
        block(x)
    block = TransformerBlock(2, 12, causal=True, cross_attention=True)
    block(x, context=context)
    with pytest.raises(ValueError, match="context=None"):
        block.get_initial_state(B, T)
    with pytest.raises(ValueError, match="causal=False; expected causal=True"):
        TransformerBlock(2, 12).get_initial_state(B, T)

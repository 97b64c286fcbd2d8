"""Whatever stands at a masked position, or in the document before a border, changes nothing elsewhere: no value, no
gradient, no state; NaN, infinity and numbers that overflow included. Over the layers of test_contract.py."""

import contextlib
import inspect

import numpy as np
import pytest
from keras import ops, tree

import keras_seq.ops
from keras_seq import layers
from tests.conftest import often
from tests.layers.conftest import BACKEND, compiled, wide
from tests.layers.test_contract import CASES, UNLIKE, B, S, T, arrays, numpy, run

MASK = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1]], bool)
RESET = np.array([[0, 0, 0, 1, 0]] * B, bool)
CONTEXT_MASK = np.array([[1, 0, 1, 0], [0, 0, 1, 1]], bool)
BAD = np.array([np.nan, np.inf, -np.inf, 1e38], "float32")


def takes(case, argument):
    return argument in inspect.signature(case.make().call).parameters


MASKED = {name: case for name, case in CASES.items() if takes(case, "mask")}
SEPARATING = {name: case for name, case in CASES.items() if takes(case, "reset_mask")}
STATEFUL = {name: case for name, case in SEPARATING.items() if hasattr(case.make(), "get_initial_state")}
KERNELS = pytest.mark.parametrize("kernels_on", [True, pytest.param(False, marks=pytest.mark.rare)])


# parts and stacks of others, and layers whose masks and resets are those of another
LIKE_OTHERS = ("SimpleRNN", "LayerNormLSTM", "MinLSTM", "RGLRU", "GatedLinearAttention", "KimiDeltaAttention")
LIKE_OTHERS += ("LearnedPositions", "RWKV7Blocks")


def table(cases):
    """Parametrize over the names of layers; on JAX, which compiles every one, unlike ones speak for the others."""
    return often("name", [*cases], UNLIKE if BACKEND == "jax" else cases.keys() - {*LIKE_OTHERS})


def built(name, randomize):
    """Return the case, the layer with random weights, arrays for it, and the shape of its output."""
    case = CASES[name]
    layer, values = case.make(), arrays(case)
    shape = tuple(run(layer, values).shape)
    return case, randomize(layer), values, shape


def capacity(layer):
    parameters = inspect.signature(layer.get_initial_state).parameters
    return {"capacity": 2 * T} if "capacity" in parameters else {}


def with_bad(x, mask):
    """x with numbers that are not finite, or nearly so, where the mask is false."""
    x = x.copy()
    x[~mask] = np.resize(BAD, (~mask).sum())[:, None]
    return x


def outcome(layer, values, gradients, direction, **masks):
    """The output, and the gradients by the weights and the inputs of its sum in a direction."""
    weights = [numpy(v) for v in layer.trainable_variables]
    outputs = []

    def forward(values):
        weights, (x, *context) = values[: len(layer.trainable_variables)], values[len(layer.trainable_variables) :]
        kwargs = {"context": context[0]} if context else {}
        result, _ = layer.stateless_call(weights, layer.non_trainable_variables, x, **kwargs, **masks)
        return result[0] if isinstance(result, tuple) else result

    def loss(values):
        outputs.append(forward(values))
        return ops.sum(ops.where(direction != 0, outputs[-1] * ops.convert_to_tensor(direction), 0.0))

    arrays = [*weights, *values]
    found = gradients(compiled(loss), arrays)
    y = compiled(forward)([ops.convert_to_tensor(v) for v in arrays]) if BACKEND == "jax" else outputs[-1]
    return wide(y), found


def compare(clean, bad, rows, inputs):
    """Equal outputs at these rows, and equal, finite gradients; those of the inputs at their own rows."""
    np.testing.assert_allclose(bad[0][rows], clean[0][rows], atol=1e-6, rtol=1e-5)
    for n, (expected, got) in enumerate(zip(clean[1], bad[1], strict=True)):
        part = inputs.get(n - len(clean[1]), slice(None))
        np.testing.assert_allclose(got[part], expected[part], atol=1e-6, rtol=1e-5)


@table(MASKED)
@KERNELS
def test_whatever_stands_at_masked_positions_changes_nothing(name, kernels_on, randomize, gradients):
    case, layer, values, shape = built(name, randomize)
    masks = {"mask": MASK, **({"context_mask": CONTEXT_MASK} if case.context else {})}
    direction = np.random.default_rng(1).normal(size=shape).astype("float32") * MASK[..., None]
    valid = [MASK, CONTEXT_MASK][: len(values)]
    bad = [with_bad(v, mask) for v, mask in zip(values, valid, strict=True)]
    with keras_seq.ops.reference() if not kernels_on else contextlib.nullcontext():
        clean, dirty = (outcome(layer, each, gradients, direction, **masks) for each in (values, bad))
    np.testing.assert_array_equal(dirty[0][MASK], clean[0][MASK])
    compare(clean, dirty, MASK, {-len(values) + n: mask for n, mask in enumerate(valid)})
    for gradient, mask in zip(dirty[1][-len(values) :], valid, strict=True):
        assert not gradient[~mask].any()


@table(STATEFUL)
def test_nor_does_it_reach_the_state_or_later_calls(name, randomize):
    case, layer, (x, *context), _ = built(name, randomize)
    mask, more = np.concatenate([MASK, MASK]), np.concatenate(2 * [arrays(case, seed=1)[0]])
    context = {"context": np.concatenate(2 * context)} if context else {}
    state = layer.get_initial_state(2 * B, **capacity(layer), **context)
    y, state = layer(np.concatenate([x, with_bad(x, MASK)]), mask=mask, state=state, return_state=True)
    again, state = layer(more, mask=mask, state=state, return_state=True)
    for values in (*(numpy(each) * mask[..., None] for each in (y, again)), *map(numpy, tree.flatten(state))):
        assert np.isfinite(values).all()
        if values.ndim:
            np.testing.assert_allclose(*np.split(values, 2), rtol=1e-6, atol=1e-6)


# of these the gradients of weights that act at each position by itself are as they come
WITH_POSITIONWISE_PARTS = ("PreNormResidual", "TransformerBlock", "RWKV7Blocks")


@table(SEPARATING)
@KERNELS
@pytest.mark.parametrize("masked", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_a_document_that_is_not_finite_stays_by_itself(name, kernels_on, masked, randomize, gradients):
    _, layer, values, shape = built(name, randomize)
    after = np.arange(T) >= 3
    mask = {"mask": np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 1]], bool)} if masked else {}
    rows = mask.get("mask", np.ones((B, T), bool)) & after
    direction = np.random.default_rng(1).normal(size=shape).astype("float32") * rows[..., None]
    bad = [values[0].copy(), *values[1:]]
    bad[0][0, 1], bad[0][1, 1] = np.nan, np.inf
    huge = [values[0].copy(), *values[1:]]
    huge[0][0, 0], huge[0][1, 1] = 1e30, 1e38
    with keras_seq.ops.reference() if not kernels_on else contextlib.nullcontext():
        clean, dirty = (outcome(layer, each, gradients, direction, reset_mask=RESET, **mask) for each in (values, bad))
    huge = numpy(run(layer, huge, reset_mask=RESET, **mask))
    np.testing.assert_allclose(huge[rows], clean[0][rows], atol=1e-6, rtol=1e-5)
    if BACKEND != "jax":
        assert run(layer, [v[:0] for v in values], reset_mask=RESET[:0]).shape == (0, *shape[1:])
    assert not np.isfinite(dirty[0][:, 1]).all(axis=-1).any()  # and is not hidden
    if name in WITH_POSITIONWISE_PARTS:
        clean, dirty = ((y, gradient[-len(values) :][:1]) for y, gradient in (clean, dirty))
    x_gradient = -1 if name in WITH_POSITIONWISE_PARTS else -len(values)
    compare(clean, dirty, rows, {x_gradient: np.broadcast_to(after, (B, T))})


@table(STATEFUL)
def test_a_state_that_is_not_finite_ends_with_its_document(name, randomize):
    """Of three batches in one, whose second and third end with NaN; no document begins in what follows the third."""
    case, layer, (x, *context), _ = built(name, randomize)
    bad, border = x.copy(), np.zeros((3 * B, T), bool)
    bad[:, T - 1], border[: 2 * B, 2] = np.nan, True
    context = {"context": np.concatenate(3 * context)} if context else {}
    more = np.concatenate(3 * [arrays(case, seed=1)[0]])
    state = layer.get_initial_state(3 * B, **capacity(layer), **context)
    _, state = layer(np.concatenate([x, bad, bad]), state=state, reset_mask=np.tile(RESET, (3, 1)), return_state=True)
    y, state = layer(more, state=state, reset_mask=border, return_state=True)
    again = y if capacity(layer) else layer(more[:, :1], state=state, return_state=True)[0]
    for values in (y, again):
        expected, got, _ = np.split(numpy(values)[:, -1], 3)
        np.testing.assert_allclose(got, expected, atol=1e-6, rtol=1e-5)
    if "Positional" in name or "Positions" in name:
        return  # a state of numbers of positions
    assert np.isnan(numpy(y)[2 * B :, 0]).any()  # the document goes on


@table(MASKED)
def test_a_mask_is_booleans_of_the_rows_and_positions_of_x(name):
    case = CASES[name]
    layer, mask = case.make(), np.ones((B, T), bool)
    values = arrays(case)
    run(layer, values)
    wrong = [  # a mask, and what is said of it
        *((part, rf"shape .*; expected \[B, T\], here \({B}, {T}\)") for part in (mask[:, :-1], mask[:1], mask[:, :1])),
        *((other_rank, "shape") for other_rank in (mask[0], mask[..., None])),
        *((mask.astype("float32"), "dtype float32; expected booleans"), (mask * 2, "holds 2"), (mask * -1, "holds -1")),
    ]
    arguments = {"mask": wrong}
    if takes(case, "reset_mask"):
        arguments["reset_mask"] = wrong
    if case.context:
        one = np.ones((B, S), bool)
        bad = one[:, :-1], one[:1], one[0], one[..., None], one.astype("float32"), one * 2
        arguments["context_mask"] = [(value, "") for value in bad]
        bad = np.ones((T - 1, S), bool), mask.astype("float32")[:, :, None], one[0]
        arguments["attention_mask"] = [(value, "") for value in bad]
    for argument, cases in arguments.items():
        for value, words in cases:
            with pytest.raises(ValueError, match=f"{argument}.*{words}"):
                run(layer, values, **{argument: value})
    np.testing.assert_array_equal(*(numpy(run(layer, values, mask=MASK.astype(dtype))) for dtype in ("bool", "int32")))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="sizes are known in all other programs")
@often("name", [*MASKED], ("LSTM", "MultiHeadSelfAttention"))
def test_in_a_graph_a_mask_of_another_size_is_never_spread(name, randomize):
    import tensorflow as tf

    case, layer, values, _ = built(name, randomize)
    names = [argument for argument in ("mask", "reset_mask") if takes(case, argument)]
    signature = [tf.TensorSpec((None, None, v.shape[-1])) for v in values]

    def refused(call):
        try:
            return not np.isfinite(numpy(call())).any()
        except (tf.errors.InvalidArgumentError, ValueError):
            return True

    for argument in names:
        with_mask = tf.function(
            lambda values, mask, argument=argument: run(layer, values, **{argument: mask}),
            input_signature=[signature, tf.TensorSpec((None, None), tf.bool)],
        )
        assert np.isfinite(numpy(with_mask(values, np.eye(B, T, dtype=bool)))).all()
        for shape in ((1, T), (B, 1), (1, 1), (B, T + 1)):
            for mask in (np.zeros(shape, bool), np.ones(shape, bool)):
                assert refused(lambda mask=mask, call=with_mask: call(values, mask)), (argument, shape)
    if name not in STATEFUL or case.context:
        return
    state = layer.get_initial_state(3, **capacity(layer))
    flat = tree.flatten(state)
    specs = [tf.TensorSpec((None, *v.shape[1:]) if len(v.shape) else (), v.dtype) for v in flat]
    with_state = tf.function(
        lambda x, *flat: layer(x, state=tree.pack_sequence_as(state, flat)), input_signature=[signature[0], *specs]
    )
    three = np.concatenate([values[0], values[0][:1]])
    assert np.isfinite(numpy(with_state(three, *flat))).all()
    for x, part in ((three[:1], flat), (three[:2], flat), (three, [v[:1] if len(v.shape) else v for v in flat])):
        assert refused(lambda x=x, part=part: with_state(x, *part)), (len(x), len(part))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", [(T, T), (B, T, T), (B, 2, T, T)])
def test_keys_that_an_attention_mask_hides_are_not_seen(shape, causal, randomize):
    layer = layers.MultiHeadSelfAttention(2, causal=causal)
    cross = layers.CrossAttention(2)
    x = arrays(CASES["LSTM"])[0]
    layer(x), cross(x, context=x)
    mask, bad = np.ones(shape, bool), x.copy()
    mask[..., 1] = False
    bad[:, 1] = np.nan
    others = np.arange(T) != 1
    for call in (
        lambda x: randomize(layer, seed=3)(x, attention_mask=mask),
        lambda context: randomize(cross, seed=3)(x, context=context, attention_mask=mask),
    ):
        np.testing.assert_array_equal(numpy(call(bad))[:, others], numpy(call(x))[:, others])
        assert np.isnan(numpy(layer(bad, attention_mask=mask))[:, 1]).all()  # nor itself, but its query is none
    mask[..., 2, 1] = True  # a query that may
    assert np.isnan(numpy(layer(bad, attention_mask=mask))[:, 2]).all()
    assert np.isnan(numpy(cross(x, context=bad, attention_mask=mask))[:, 2]).all()


@pytest.mark.parametrize("sliding_window", [None, 3])
def test_keys_and_values_that_overflow_stay_in_their_document(sliding_window):
    layer = layers.MultiHeadSelfAttention(
        1, causal=True, use_bias=False, kernel_initializer="ones", sliding_window=sliding_window
    )
    x = np.random.default_rng(0).normal(size=(1, T, 8)).astype("float32")
    expected = numpy(layer(x, reset_mask=RESET[:1]))
    for position, others in ((0, slice(3, T)), (3, slice(0, 3))):
        bad = x.copy()
        bad[0, position] = 1e38
        y = numpy(layer(bad, reset_mask=RESET[:1]))
        np.testing.assert_array_equal(y[0, others], expected[0, others])
        assert not np.isfinite(y[0, position]).any()


def test_a_query_that_overflows_changes_no_gradient_of_another_document(gradients):
    layer = layers.MultiHeadSelfAttention(1, causal=True, use_bias=False, kernel_initializer="ones")
    x = np.random.default_rng(0).normal(size=(1, T, 8)).astype("float32")
    layer(x)
    of_second = lambda tensors: ops.sum(ops.square(layer(tensors[0], reset_mask=RESET[:1])[:, 3:]))  # noqa: E731
    (expected,) = gradients(of_second, [x])
    x[0, 0] = 1e38
    (got,) = gradients(of_second, [x])
    np.testing.assert_array_equal(got[0, 3:], expected[0, 3:])


@pytest.mark.parametrize("size", [1e38, -1e38])
@pytest.mark.parametrize("kind", ["MinGRU", "MinLSTM"])
def test_pre_activations_that_overflow_stay_in_their_document(kind, size):
    layer = getattr(layers, kind)(1, kernel_initializer="ones", return_sequences=True)
    x = np.random.default_rng(0).normal(size=(1, T, 8)).astype("float32")
    expected = numpy(layer(x, reset_mask=RESET[:1]))
    bad = x.copy()
    bad[0, :2] = size
    y = numpy(layer(bad, reset_mask=RESET[:1]))
    np.testing.assert_array_equal(y[0, 3:], expected[0, 3:])
    np.testing.assert_array_equal(y[0, :3], numpy(layer(bad))[0, :3])


def test_segments_of_padding_are_not_read():
    layer, x = layers.SegmentEmbedding(2), arrays(CASES["LSTM"])[0]
    segments = np.ones((B, T), "int32")
    expected = numpy(layer(x, segments, mask=MASK))
    segments[~MASK] = -7
    got = numpy(layer(with_bad(x, MASK), segments, mask=MASK))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got[MASK], numpy(layer(x, np.ones((B, T), "int32")))[MASK])


def test_projected_inputs_of_padding_are_not_read(randomize, gradients):
    layer = layers.LSTM(3, return_sequences=True)
    x = arrays(CASES["LSTM"])[0]
    layer(x)
    randomize(layer)
    z = numpy(layer.project_inputs(x))

    def loss(values):
        return ops.sum(layer(x, projected_inputs=values[0], mask=MASK) * ops.cast(MASK[..., None], "float32"))

    for got, expected in zip(gradients(loss, [with_bad(z, MASK)]), gradients(loss, [z]), strict=True):
        np.testing.assert_array_equal(got[MASK], expected[MASK])
        assert not got[~MASK].any()


@pytest.mark.parametrize("shape", [(T, T), (B, T, T), (B, 2, T, T), (1, T)])
def test_the_function_sees_no_key_that_its_mask_hides(shape):
    q, k, v = (np.random.default_rng(n).normal(size=(B, T, 2, 3)).astype("float32") for n in range(3))
    mask = np.ones(shape, bool)
    mask[..., 1] = False
    dirty_k, dirty_v = k.copy(), v.copy()
    dirty_k[0, 1], dirty_v[1, 1] = np.nan, np.inf
    for got, expected in zip(layers.attention(q, dirty_k, dirty_v, mask), layers.attention(q, k, v, mask), strict=True):
        np.testing.assert_array_equal(numpy(got), numpy(expected))
    mask[..., 1] = True
    assert np.isnan(numpy(layers.attention(q, dirty_k, dirty_v, mask)[0])).all()

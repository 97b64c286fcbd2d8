"""What holds for every layer that keeps a state. The formulas are tested in the file of each layer."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops, tree

import keras_seq.ops
from keras_seq import layers
from keras_seq.training.muon import muon_blocks
from tests.conftest import often
from tests.layers.conftest import compiled, rare_on_jax, wide

BACKEND = keras.backend.backend()
B, T, D = 2, 9, 6
numpy = ops.convert_to_numpy
ALL = {"return_sequences": True}
MIXERS = {
    "RGLRU": lambda **k: layers.RGLRU(2, **k),
    "GriffinRecurrentBlock": lambda **k: layers.GriffinRecurrentBlock(2, kernel_size=3, **k),
    "Mamba2": lambda **k: layers.Mamba2(2, head_dim=3, state_dim=4, kernel_size=3, **k),
    "GatedLinearAttention": lambda **k: layers.GatedLinearAttention(2, gate_rank=3, **k),
    "GatedDeltaNet": lambda **k: layers.GatedDeltaNet(2, kernel_size=3, **k),
    "GatedDeltaNet, shared keys": lambda **k: layers.GatedDeltaNet(
        4, 2, 3, kernel_size=3, num_key_heads=2, use_conv_bias=False, **k
    ),
    "Gated DeltaProduct": lambda **k: layers.GatedDeltaNet(
        2, kernel_size=3, num_householder=2, allow_neg_eigval=True, **k
    ),
    "KimiDeltaAttention": lambda **k: layers.KimiDeltaAttention(2, kernel_size=3, **k),
    "MLSTM": lambda **k: layers.MLSTM(2, qkv_block_size=3, kernel_size=3, **k),
    "SLSTM": lambda **k: layers.SLSTM(2, kernel_size=3, **k),
    "RWKV7TimeMix": lambda **k: layers.RWKV7TimeMix(2, rank=3, **k),
    "RWKV7Blocks": lambda **k: layers.RWKV7Blocks(2, 2, 7, rank=3, **k),
}
SINGLE = {
    "SimpleRNN": lambda **k: layers.SimpleRNN(5, **ALL, **k),
    "GRU": lambda **k: layers.GRU(5, **ALL, **k),
    "GRU, reset before": lambda **k: layers.GRU(5, reset_after=False, **ALL, **k),
    "LSTM": lambda **k: layers.LSTM(5, **ALL, **k),
    "LayerNormLSTM": lambda **k: layers.LayerNormLSTM(5, **ALL, **k),
    "MinGRU": lambda **k: layers.MinGRU(5, **ALL, **k),
    "MinLSTM": lambda **k: layers.MinLSTM(5, **ALL, **k),
    "CausalDepthwiseConv1D": lambda **k: layers.CausalDepthwiseConv1D(4, **k),
    "SelectiveStateSpace": lambda **k: layers.SelectiveStateSpace(4, kernel_size=3, dt_rank=2, use_bias=True, **k),
}
OTHERS = SINGLE | {
    "PreNormResidual": lambda **k: layers.PreNormResidual(
        [layers.CausalDepthwiseConv1D(3, **k), layers.MinGRU(5, **ALL, **k), layers.Dense(D, **k)], **k
    )
}
MAKERS = MIXERS | OTHERS
QUICK = ("GatedDeltaNet", "Gated DeltaProduct", "KimiDeltaAttention", "SLSTM", "RWKV7Blocks")
# those that are parts of others, or have the recurrence of another
LIKE_OTHERS = ("GriffinRecurrentBlock", "GatedLinearAttention", "RWKV7TimeMix")
ON_JAX = (*QUICK, "LSTM", "MinGRU")
SCANS = ("MinGRU", "MinLSTM", "SelectiveStateSpace")
ROUNDING = {"float32": 1e-5, "mixed_bfloat16": 3e-2, "mixed_float16": 4e-3}


each = rare_on_jax("make", MIXERS, QUICK)
unlike = often("make", MAKERS, ON_JAX if BACKEND == "jax" else MAKERS.keys() - {*LIKE_OTHERS})
quick = often("make", MAKERS, (*QUICK, *OTHERS) if BACKEND != "jax" else ON_JAX)  # where a law of a mixer takes long


@pytest.fixture
def made(randomize):
    def made(make, **kwargs):
        layer = make(**kwargs)
        layer.build((None, None, D))
        return randomize(layer, scale=0.6)

    return made


def inputs(batch=B, length=T, seed=1, dtype="float32"):
    return np.random.default_rng(seed).normal(size=(batch, length, D)).astype(dtype)


def dtypes(values):
    return [keras.backend.standardize_dtype(v.dtype) for v in tree.flatten(values)]


def assert_near(got, expected, rounding=1e-5):
    """By the largest of the numbers."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=rounding * max(1, np.abs(expected).max()))


def assert_near_states(got, expected, rows=slice(None), rounding=1e-5):
    for a, b in zip(tree.flatten(got), tree.flatten(expected), strict=True):
        assert_near(wide(a)[rows], wide(b), rounding)


PADDING = [0, 0, 1, 1, 0, 1, 1, 1, 1]
MASK = np.array([PADDING, PADDING[::-1]], bool)


def check_parts(layer, policy, mask):
    """Steps and parts with the state handed on are the whole, from a state that is not zero."""
    call = compiled(lambda x, state, mask: layer(x, state=state, mask=mask, return_state=True))
    x = ops.cast(inputs(), layer.compute_dtype)
    real = np.ones((B, T), bool) if mask is None else mask
    _, start = layer(inputs(seed=2), return_state=True)
    whole, last = call(x, start, mask)
    state, parts = start, []
    for first, end in itertools.pairwise((0, 1, 2, 5, 6, T)):  # steps after steps, parts after steps, steps after parts
        y, state = call(x[:, first:end], state, None if mask is None else mask[:, first:end])
        assert dtypes([y, state]) == [layer.compute_dtype, *dtypes(layer.get_initial_state(B))]
        parts.append(wide(y))
    assert_near(np.concatenate(parts, 1)[real], wide(whole)[real], ROUNDING[policy])
    assert_near_states(state, last, rounding=ROUNDING[policy])
    if mask is None:
        y, state = layer.step(x[:, 0], start)
        assert dtypes([y, state]) == [layer.compute_dtype, *dtypes(start)]
        assert_near(wide(y), wide(whole)[:, 0], ROUNDING[policy])


@unlike
def test_steps_and_parts_equal_the_whole(made, make):
    check_parts(made(make), "float32", None)


@often("make", MAKERS, ON_JAX)
def test_masked_steps_and_parts_equal_the_whole(made, make):
    check_parts(made(make), "float32", MASK)


@rare_on_jax("make", OTHERS, ("LSTM", "MinGRU"))
@pytest.mark.parametrize("policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.rare)])
def test_they_do_in_half_precision(made, make, policy):
    check_parts(made(make, dtype=policy), policy, None)


@often("make", MAKERS, ON_JAX)
def test_weights_are_read_alike_in_a_model_and_without_one(made, make):
    """Keras rounds those of the outermost layer, whatever its `autocast` says, unless their own says no."""
    layer = made(make, dtype="mixed_bfloat16")

    class Outer(keras.layers.Layer):
        def call(self, x):
            return layer(x)

    y, in_model = layer(inputs()), Outer(dtype="mixed_bfloat16")(inputs())
    np.testing.assert_array_equal(*(numpy(ops.cast(each, "float32")) for each in (y, in_model)))


def test_forget_gates_of_an_slstm_vary_by_less_than_their_bias_is_rounded_by(made):
    def change(policy):
        layer, last = made(MIXERS["SLSTM"], dtype=policy), []
        forget = layer.input_denses[1]
        forget.bias.assign(np.full(D, 5.0))
        for scale in (0.0, 0.003):
            forget.kernel.assign(np.full(forget.kernel.shape, scale))
            last.append(numpy(layer(inputs(length=3), return_state=True)[1][1][1]))  # c
        return last[1] - last[0]

    expected = change("float32")
    np.testing.assert_allclose(change("mixed_bfloat16"), expected, atol=0.1 * np.abs(expected).max())


def check_mask(layer, padding):
    x, valid = inputs(), np.array(padding, bool)
    call = compiled(lambda x, mask: layer(x, mask=mask, return_state=True))
    y, state = call(x, np.stack([valid, np.ones(T, bool)]))
    short, last = layer(x[:1, valid], return_state=True)
    assert_near(numpy(y)[0, valid], numpy(short)[0])
    assert_near_states(state, last, slice(1))
    if hasattr(layer, "return_sequences"):  # the output repeats, as in Keras
        y = numpy(y)
        before = np.concatenate([np.zeros_like(y[0, :1]), y[0, :-1]])
        np.testing.assert_allclose(y[0, ~valid], before[~valid], rtol=1e-5)
    _, before = layer(inputs(seed=2), return_state=True)
    _, after = layer(x, state=before, mask=np.zeros((B, T), bool), return_state=True)
    assert_near_states(after, before, rounding=1e-6)


@quick
@pytest.mark.parametrize(
    "padding",
    [
        pytest.param(PADDING, id="left"),
        pytest.param([1, 1, 1, 1, 1, 1, 0, 0, 0], id="right", marks=pytest.mark.rare),  # and in test_contract.py
    ],
)
def test_a_mask_is_a_shorter_sequence(made, make, padding):
    check_mask(made(make), padding)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="of the layers whose scan has another form there")
@pytest.mark.parametrize("name", SCANS)
def test_the_references_keep_these_laws_too(float64, check_gradients, made, name):
    with keras_seq.ops.reference():
        for mask in (None, MASK):
            check_parts(made(MAKERS[name]), "float32", mask)
        check_mask(made(MAKERS[name]), PADDING)
        check_causality(made(MAKERS[name]))
        check_gradients(made(MAKERS[name], dtype="float64"), inputs(dtype="float64"), mask=MASK)


@unlike
def test_the_future_cannot_leak(made, make):
    check_causality(made(make))


@quick
def test_the_future_cannot_leak_in_half_precision(made, make):
    check_causality(made(make, dtype="mixed_bfloat16"))


def check_causality(layer):
    x = inputs()
    before = wide(layer(x))
    changed = np.concatenate([x[:, :4], inputs(seed=7)[:, 4:]], axis=1)
    after = wide(layer(changed))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).any(axis=-1).all()


@quick
def test_gradients_are_those_of_finite_differences(float64, check_gradients, made, make):
    if BACKEND == "jax":
        pytest.skip("Keras narrows the dtype of the recurrence to float32 there")
    mask = np.array([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1]], bool)
    check_gradients(made(make, dtype="float64"), inputs(length=5, dtype="float64"), mask=mask)


@often("make", MIXERS, ("GatedDeltaNet", "RWKV7Blocks"))  # a loop takes seconds for what its gates show at once
def test_long_sequences_are_finite_in_bfloat16(gradients, made, make):
    if BACKEND != "tensorflow":
        pytest.skip("a minute of eager positions")
    layer, x = made(make, dtype="mixed_bfloat16"), 3 * inputs(1, 300)
    values = [numpy(v) for v in layer.trainable_variables]

    def loss(v):
        return ops.mean(
            ops.square(ops.cast(layer.stateless_call(v[:-1], layer.non_trainable_variables, v[-1])[0], "float32"))
        )

    assert all(np.isfinite(gradient).all() for gradient in gradients(loss, [*values, x]))


@each
def test_no_vector_is_orthogonalized_and_the_output_may_start_at_zero(made, make):
    layer = made(make)
    for weight in layer.trainable_variables:
        blocks = muon_blocks(weight)
        if len(weight.shape) == 2 and blocks > 0:
            assert weight.shape[1] % blocks == 0
            assert weight.shape[1] // blocks > 1, weight.path

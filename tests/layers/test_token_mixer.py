"""What holds for every layer with a linear recurrence of a few heads, and for RGLRU, SLSTM and RWKV-7's other layers.

Their formulas are tested in the file of each layer.
"""

import itertools

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_seq import layers
from keras_seq.training.muon import muon_blocks
from tests.layers.conftest import compiled, rare_on_jax

BACKEND = keras.backend.backend()
B, T, D = 2, 9, 6
numpy = ops.convert_to_numpy
MAKERS = {
    "RGLRU": lambda **k: layers.RGLRU(2, **k),
    "GriffinRecurrentBlock": lambda **k: layers.GriffinRecurrentBlock(2, kernel_size=3, **k),
    "Mamba2": lambda **k: layers.Mamba2(2, head_dim=3, state_dim=4, kernel_size=3, **k),
    "GatedLinearAttention": lambda **k: layers.GatedLinearAttention(2, gate_rank=3, **k),
    "GatedDeltaNet": lambda **k: layers.GatedDeltaNet(2, kernel_size=3, **k),
    "MLSTM": lambda **k: layers.MLSTM(2, qkv_block_size=3, kernel_size=3, **k),
    "SLSTM": lambda **k: layers.SLSTM(2, kernel_size=3, **k),
    "RWKV7TimeMix": lambda **k: layers.RWKV7TimeMix(2, rank=3, **k),
    "RWKV7Blocks": lambda **k: layers.RWKV7Blocks(2, 2, 7, rank=3, **k),
}
QUICK = ("GatedDeltaNet", "SLSTM", "RWKV7Blocks")
each = rare_on_jax("make", MAKERS, quick=[MAKERS[name] for name in QUICK])
# those that are parts of others, or have the recurrence of another
LIKE_OTHERS = ("GriffinRecurrentBlock", "GatedLinearAttention", "RWKV7TimeMix")
unlike = pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            make,
            marks=[pytest.mark.rare] * (name in LIKE_OTHERS or (BACKEND == "jax" and name not in QUICK)),
        )
        for name, make in MAKERS.items()
    ],
    ids=MAKERS,
)
# where a law takes long, the quick ones speak for the others on every backend
quick = pytest.mark.parametrize(
    "make",
    [pytest.param(make, marks=[] if name in QUICK else [pytest.mark.rare]) for name, make in MAKERS.items()],
    ids=MAKERS,
)


@pytest.fixture
def made(randomize):
    def made(make, **kwargs):
        layer = make(**kwargs)
        layer.build((None, None, D))
        return randomize(layer, scale=0.6)

    return made


def inputs(batch=B, length=T, seed=1, dtype="float32"):
    return np.random.default_rng(seed).normal(size=(batch, length, D)).astype(dtype)


def wide(y):
    return numpy(ops.cast(y, "float32"))


def assert_equal_states(got, expected, rows=slice(None), **tolerance):
    for a, b in zip(tree.flatten(got), tree.flatten(expected), strict=True):
        np.testing.assert_allclose(wide(a)[rows], wide(b), **tolerance)


@unlike
def test_steps_and_parts_equal_the_whole(made, make):
    layer, x = made(make), inputs()
    call = compiled(lambda x, state: layer(x, state=state, return_state=True))
    start = layer.get_initial_state(B)
    whole, last = call(x, start)
    cuts = np.sort(np.random.default_rng(5).choice(np.arange(1, T), 3, replace=False))
    for bounds in ([0, *cuts, T], range(T + 1)):
        state, parts = start, []
        for first, end in itertools.pairwise(bounds):
            y, state = call(x[:, first:end], state)
            parts.append(numpy(y))
        np.testing.assert_allclose(np.concatenate(parts, 1), numpy(whole), atol=1e-5, rtol=1e-5)
        assert_equal_states(state, last, atol=1e-5, rtol=1e-5)
    y, state = layer.step(x[:, 0], start)
    np.testing.assert_allclose(numpy(y), numpy(whole)[:, 0], atol=1e-5)


@quick
@pytest.mark.parametrize(
    "padding",
    [
        pytest.param([0, 0, 1, 1, 0, 1, 1, 1, 1], id="left"),
        pytest.param([1, 1, 1, 1, 1, 1, 0, 0, 0], id="right", marks=pytest.mark.rare),  # and in test_contract.py
    ],
)
def test_a_mask_is_a_shorter_sequence(made, make, padding):
    layer, x, valid = made(make), inputs(), np.array(padding, bool)
    call = compiled(lambda x, mask: layer(x, mask=mask, return_state=True))
    y, state = call(x, np.stack([valid, np.ones(T, bool)]))
    short, last = layer(x[:1, valid], return_state=True)
    np.testing.assert_allclose(numpy(y)[0, valid], numpy(short)[0], rtol=1e-5, atol=1e-5)
    assert_equal_states(state, last, slice(1), rtol=1e-5, atol=1e-5)
    _, before = layer(inputs(seed=2), return_state=True)
    _, after = layer(x, state=before, mask=np.zeros((B, T), bool), return_state=True)
    assert_equal_states(after, before, rtol=1e-6)


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


@pytest.mark.parametrize(
    "make",
    [
        # a loop takes seconds for what its gates show at once
        pytest.param(make, marks=[] if name in ("GatedDeltaNet", "RWKV7Blocks") else pytest.mark.rare, id=name)
        for name, make in MAKERS.items()
    ],
)
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
def test_states_of_another_width_or_batch_are_refused(made, make):
    layer, x = made(make), inputs()
    with pytest.raises(ValueError, match=r"expected .*, as get_initial_state returns"):
        layer(x, state=layer.get_initial_state(B + 1))
    with pytest.raises(ValueError, match="state has the shapes"):
        layer(x, state=())


INVALID = {
    "num_groups": (lambda: layers.Mamba2(4, num_groups=3), "num_groups=3; expected a divisor of num_heads=4"),
    "head_dim": (lambda: layers.MLSTM(2, head_dim=6), "head_dim=6; expected a multiple of qkv_block_size=4"),
    "width": (lambda: layers.SLSTM(4).build((None, None, D)), "num_heads=4; expected a divisor of the width 6"),
    "heads": (lambda: layers.RGLRU(4).build((None, None, D)), "num_heads=4; expected a divisor of the width 6"),
    "value": (lambda: layers.RWKV7TimeMix(2, value_residual=True)(inputs()), "first_value is missing"),
}


@pytest.mark.parametrize(("make", "message"), INVALID.values(), ids=INVALID)
def test_arguments_that_do_not_go_together_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@each
def test_no_vector_is_orthogonalized_and_the_output_may_start_at_zero(made, make):
    layer = made(make)
    for weight in layer.trainable_variables:
        blocks = muon_blocks(weight)
        if len(weight.shape) == 2 and blocks > 0:
            assert weight.shape[1] % blocks == 0
            assert weight.shape[1] // blocks > 1, weight.path

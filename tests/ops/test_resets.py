"""Kernels with a `reset_mask`: values and gradients of the reference, and none across the border of two documents."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_seq.ops import gru, lstm, selective_scan, xla
from tests.ops.compare import assert_equal, by_reference, values_and_gradients

BATCH, LENGTH, UNITS = 3, 4, 2
RESETS = np.array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 1, 1, 0]], bool)
SHAPES = {
    "lstm": [(BATCH, LENGTH, 4 * UNITS), (UNITS, 4 * UNITS), (BATCH, UNITS), (BATCH, UNITS)],
    "gru": [(BATCH, LENGTH, 3 * UNITS), (BATCH, UNITS), (UNITS, 3 * UNITS), (3 * UNITS,)],
    "selective_scan": [*[(BATCH, LENGTH, UNITS)] * 2, (UNITS, 4), *[(BATCH, LENGTH, 4)] * 2, (BATCH, UNITS, 4)],
}
OPERATIONS = {"lstm": lstm.lstm, "gru": gru.gru, "selective_scan": selective_scan.selective_scan}


@pytest.fixture
def loops(monkeypatch):
    """Take the XLA loops, or unrolled time steps."""

    def choose(xla_loop):
        for module in (lstm.tensorflow, gru.tensorflow):
            monkeypatch.setattr(module, "xla_loop_is_faster", lambda *args: xla_loop)

    return choose


def case(name, reset_mask=RESETS, dropped=False):
    """Return the function of a kernel's module or reference by tensors only, and those tensors."""
    random = np.random.default_rng(3)
    args = [tf.constant(random.normal(scale=0.7, size=shape)) for shape in SHAPES[name]]
    if name == "selective_scan":
        args[1], args[2] = tf.exp(args[1]), -tf.exp(args[2])
    dropout = tf.constant(random.integers(0, 2, size=(BATCH, UNITS)) * 2.0) if dropped else None
    masks = {"dropout_mask": dropout} if name == "lstm" else {}
    if reset_mask is not None:
        masks["reset_mask"] = tf.constant(reset_mask)
    return lambda function: functools.partial(function, **masks), args


@pytest.mark.parametrize(
    ("name", "with_xla", "dropped"),
    [
        pytest.param("lstm", True, False, marks=pytest.mark.rare),
        ("lstm", True, True),
        ("lstm", False, True),
        ("gru", True, False),
        ("gru", False, False),
        ("selective_scan", True, False),
    ],
)
def test_values_and_gradients_are_those_of_the_reference(loops, monkeypatch, name, with_xla, dropped):
    loops(with_xla)
    for limit in ("MIN_BATCH_TO_SPLIT", "MIN_STATE_SIZE_TO_SPLIT"):
        monkeypatch.setattr(xla, limit, 2)
    bind, args = case(name, dropped=dropped)
    assert bind(OPERATIONS[name].twin)(*args)
    expected = by_reference(bind(OPERATIONS[name]), args)
    assert_equal(values_and_gradients(bind(OPERATIONS[name]), args), expected, "float64")
    unmasked, _ = case(name, None, dropped)
    assert np.abs(unmasked(OPERATIONS[name])(*args)[0] - expected[0]).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "with_xla"), [("lstm", True), ("lstm", False), ("gru", True), ("selective_scan", True)]
)
def test_no_gradient_crosses_a_border(loops, name, with_xla):
    loops(with_xla)
    bind, args = case(name, np.arange(LENGTH) == np.full((BATCH, 1), 2))

    def after_the_border(*args):
        y, *state = bind(OPERATIONS[name])(*args)
        return y[:, 2:], *state

    gradients = values_and_gradients(after_the_border, args)[-len(args) :]
    for argument, gradient in zip(args, gradients, strict=True):
        if argument.shape[:2] == (BATCH, LENGTH):
            assert not np.any(gradient[:, :2])
            assert np.any(gradient[:, 2]), "its own document"
        elif argument.shape[0] == BATCH:
            assert not np.any(gradient), "the first state"

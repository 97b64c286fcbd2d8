"""RMS normalization on torch, with a gradient of its own, against torch's formula and finite differences."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("a kernel of torch", allow_module_level=True)

import torch

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops.position_wise import torch as optimized

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("shape", [(5,), (1, 1), (0, 3), (2, 3, 4, 6)])
def test_values_and_gradients_are_those_of_torch(shape):
    random = np.random.default_rng(0)
    x, gamma = (torch.from_numpy(random.normal(size=size)).requires_grad_() for size in (shape, shape[-1:]))
    dy = torch.from_numpy(random.normal(size=shape))
    ours = optimized.normalize_rows(x, gamma, None, 1e-2, False)
    theirs = torch.nn.functional.rms_norm(x, shape[-1:], gamma, 1e-2)
    torch.testing.assert_close(ours, theirs)
    gradients = (torch.autograd.grad(y, [x, gamma], dy) for y in (ours, theirs))
    torch.testing.assert_close(*gradients)


def test_first_and_second_derivatives_are_finite_differences():
    random = np.random.default_rng(1)
    args = [torch.from_numpy(random.normal(size=size)).requires_grad_() for size in ((2, 3, 4), (4,))]

    def normalize(x, gamma):
        return optimized.normalize_rows(x, gamma, None, 1e-2, False)

    assert torch.autograd.gradcheck(normalize, args)
    assert torch.autograd.gradgradcheck(normalize, args)


def test_what_needs_no_gradient_has_none(randomize):
    layer = layers.RMSNormalization()
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(3, 4)).astype("float32"))
    layer(x)
    randomize(layer)
    layer.trainable = False
    y = layer(x.requires_grad_())
    (gradient,) = torch.autograd.grad(y.square().sum(), [x])
    with keras_seq.ops.reference():
        (expected,) = torch.autograd.grad(layer(x).square().sum(), [x])
    torch.testing.assert_close(gradient, expected)
    with torch.no_grad():
        assert not layer(x).requires_grad

"""torch.func.vmap goes through recurrent layers on torch: outputs and gradients of each sample by itself."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("torch.func is torch's", allow_module_level=True)

import torch

from keras_seq import layers

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("name", ["LSTM", "GRU", "MinGRU", "RGLRU", "SelectiveStateSpace"])
def test_outputs_and_gradients_of_each_sample(name):
    options = {"RGLRU": {"num_heads": 2}, "SelectiveStateSpace": {"state_dim": 3}}
    layer = getattr(layers, name)(**options.get(name, {"units": 4, "return_sequences": True}))
    x = torch.tensor(np.random.default_rng(0).normal(size=(3, 5, 4)), dtype=torch.float32)
    expected = layer(x)
    torch.testing.assert_close(torch.func.vmap(lambda row: layer(row[None])[0])(x), expected)
    weights = [v.value.detach() for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def loss(weights, row):
        return layer.stateless_call(weights, others, row[None])[0].square().sum()

    got = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    for n, row in enumerate(x):
        for found, wanted in zip(got, torch.func.grad(loss)(weights, row), strict=True):
            torch.testing.assert_close(found[n], wanted)
    rows = torch.func.vmap(lambda row: layer.stateless_call(weights, others, row[None])[0][0])(x)
    torch.testing.assert_close(rows, expected)

"""The fused Adam of torch moves weights of any layout in memory as Keras's formula does."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("the kernel is torch's", allow_module_level=True)

import torch

from keras_seq.kernels.torch import adam
from keras_seq.training import optimizers

pytestmark = pytest.mark.any_backend
RANDOM = np.random.default_rng(0)
LAYOUTS = {  # tensors with the memory of another order of axes, or with gaps
    "rows": lambda: torch.zeros(3, 4),
    "columns": lambda: torch.zeros(4, 3).mT,
    "three axes": lambda: torch.zeros(4, 2, 3).permute(2, 1, 0),
    "four axes": lambda: torch.zeros(4, 2, 5, 3).permute(1, 3, 0, 2),
    "an axis of one": lambda: torch.zeros(1, 4, 3).permute(2, 0, 1),
    "number": lambda: torch.zeros(()),
    "gaps": lambda: torch.zeros(6, 4)[::2],
    "gaps in a vector": lambda: torch.zeros(6)[::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_moved_by_the_formula(layout):
    weight = keras.Variable(LAYOUTS[layout]().numpy())
    weight.value.data = LAYOUTS[layout]()
    optimizer = optimizers.Adam(0.1)
    optimizer.build([weight])
    assert adam.supports([weight], [weight.value]) == ("gaps" not in layout)
    expected, m, v = (np.zeros(weight.shape) for _ in range(3))
    for t in range(1, 6):
        gradient = RANDOM.normal(size=weight.shape)
        with torch.no_grad():
            optimizer.apply([torch.tensor(gradient, dtype=torch.float32)], [weight])
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        expected -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(weight), expected, atol=3e-4)  # small gradients are rounded


def test_a_kernel_that_keras_draws_orthogonal():
    layer = keras.layers.EinsumDense("abc,cde->abde", (None, 2, 4), kernel_initializer="orthogonal")
    layer.build((None, 3, 8))
    assert not layer.kernel.value.is_contiguous()
    in_order = keras.Variable(np.ascontiguousarray(keras.ops.convert_to_numpy(layer.kernel)))
    weights = [in_order, layer.kernel]
    for weight in weights:
        optimizer = optimizers.AdamW(0.1)
        optimizer.build([weight])
        random = np.random.default_rng(1)
        for _ in range(3):
            with torch.no_grad():
                optimizer.apply([torch.tensor(random.normal(size=weight.shape), dtype=torch.float32)], [weight])
    np.testing.assert_allclose(*map(keras.ops.convert_to_numpy, weights), atol=1e-6)

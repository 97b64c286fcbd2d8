import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import kernels
from keras_seq.kernels.jax import causal_attention as optimized
from keras_seq.layers.attention import _causal_attention as reference


@pytest.mark.parametrize("groups", [4, 2, 1])
def test_it_has_the_values_of_the_reference(groups):
    random = np.random.default_rng(groups)
    q, k, v = (random.normal(size=(2, 7, heads, 8)).astype("float32") for heads in (4, groups, groups))
    expected = reference(*map(ops.convert_to_tensor, (q, k, v)))
    np.testing.assert_allclose(optimized.apply(*map(ops.convert_to_tensor, (q, k, v))), expected, atol=1e-5)


def test_it_is_taken_on_a_gpu_with_jax_in_half_precision(monkeypatch):
    q = {dtype: ops.zeros((1, 2, 1, 8), dtype) for dtype in ("float32", "bfloat16")}

    def taken(dtype):
        return kernels.dispatch("causal_attention", reference, *3 * [q[dtype]]) is optimized.apply

    monkeypatch.setattr(kernels, "_MODULES", {"causal_attention": optimized})
    assert not taken("bfloat16")
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["gpu:0"])
    assert taken("bfloat16")
    assert not taken("float32")
    with kernels.disabled():
        assert not taken("bfloat16")

import numpy as np
import pytest
from keras import ops

from keras_seq.ops.attention import causal_attention
from keras_seq.ops.attention import jax as optimized


@pytest.mark.parametrize("groups", [4, 2, 1])
def test_it_has_the_values_of_the_reference(groups):
    random = np.random.default_rng(groups)
    q, k, v = (random.normal(size=(2, 7, heads, 8)).astype("float32") for heads in (4, groups, groups))
    expected = causal_attention.__wrapped__(*map(ops.convert_to_tensor, (q, k, v)))
    np.testing.assert_allclose(optimized.flash_attention(*map(ops.convert_to_tensor, (q, k, v))), expected, atol=1e-5)


def test_it_is_for_half_precision_without_documents():
    q = {dtype: ops.zeros((1, 2, 1, 8), dtype) for dtype in ("float32", "bfloat16")}
    assert optimized.is_plain_in_half_precision(*3 * [q["bfloat16"]])
    assert not optimized.is_plain_in_half_precision(*3 * [q["float32"]])
    assert not optimized.is_plain_in_half_precision(*3 * [q["bfloat16"]], None, ops.zeros((1, 2), "int32"))

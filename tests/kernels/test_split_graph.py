"""A split graph computes what the recorded one does, and what depends on weights alone only once."""

import keras
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("only torch records graphs", allow_module_level=True)

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keras_seq.kernels.torch.simplified_graph import simplified
from keras_seq.kernels.torch.split_graph import split

pytestmark = pytest.mark.any_backend


def names(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def run(modules, weights, *args):
    first, rest = map(simplified, modules)
    return rest(*weights, *args, *first(*weights))


def test_what_depends_on_weights_alone_is_computed_first():
    def record(v, w, x):
        joined = torch.cat([v * torch.arange(2), w])
        return x @ joined, joined.sum() + torch.ones(())

    v, w, x = torch.rand(2, 2), torch.rand(3, 2), torch.rand(4, 5)
    modules = split(make_fx(record)(v, w, x), [v, w])
    assert names(modules[1]) == ["aten.mm.default"]
    for weights in ((v, w), (w[:2], 2 * w)):  # those of another call
        for result, expected in zip(run(modules, weights, x), record(*weights, x), strict=True):
            assert torch.equal(result, expected)


def test_random_numbers_are_drawn_in_each_call():
    modules = split(make_fx(lambda w, x: x + torch.rand_like(w) + w)(torch.zeros(3), torch.zeros(3)), [torch.zeros(3)])
    assert "aten.rand_like.default" in names(modules[1])
    assert names(modules[0]) == []


def test_nothing_is_computed_first_where_an_operation_works_in_place():
    def record(w, x):
        zeros = torch.zeros(2)
        zeros[0] = w[0]
        return zeros * x, zeros + 1

    w, x = torch.tensor([3.0]), torch.ones(2)
    modules = split(make_fx(record)(w, x), [w])
    assert names(modules[0]) == []
    for _ in range(2):
        assert [result.tolist() for result in run(modules, (w,), x)] == [[3.0, 0.0], [4.0, 1.0]]


def test_a_function_without_weights_is_not_changed():
    modules = split(make_fx(lambda x: x + torch.ones(()))(torch.zeros(3)), [])
    assert names(modules[0]) == []
    assert run(modules, (), torch.zeros(3)).tolist() == [1.0] * 3


def test_quantized_weights_are_not_kept_in_a_larger_dtype():
    w, v, x = torch.tensor([2, 3], dtype=torch.int8), torch.tensor([0.5, 1.0]), torch.ones(2)
    modules = split(make_fx(lambda w, v, x: x * (w.float() * (v + v)))(w, v, x), [w, v])
    assert names(modules[0]) == ["aten.add.Tensor"]
    assert run(modules, (w, v), x).tolist() == [2.0, 6.0]

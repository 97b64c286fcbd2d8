"""A simplified graph computes what the recorded one does."""

import keras
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("only torch records graphs", allow_module_level=True)

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keras_seq.kernels.torch.simplified_graph import simplified

pytestmark = pytest.mark.any_backend


def simplify(function, *args):
    """Return the simplified function, and the names of the operations that it calls."""
    module = make_fx(function)(*args)
    simple = simplified(module)
    return simple, [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def test_constants_are_computed_once_but_not_random_numbers():
    def record(x):
        three = torch.tensor(1.0) + 2
        return x.detach() * three, torch.rand(()) + three

    function, names = simplify(record, torch.ones(2))
    assert sorted(names) == ["aten.add.Tensor", "aten.mul.Tensor", "aten.rand.default"]
    (y, first), (_, second) = function(torch.ones(2)), function(torch.ones(2))
    assert y.tolist() == [3.0, 3.0]
    assert 3 < first != second > 3


def test_a_matrix_transposed_twice_and_a_view_of_a_view_cost_nothing():
    def record(x):
        return x.t().t() @ x.t(), x.view(6).view(3, 2).view(-1)

    function, names = simplify(record, torch.ones(2, 3))
    assert sorted(names) == ["aten.mm.default", "aten.t.default", "aten.view.default"]
    x = torch.rand(2, 3)
    for result, expected in zip(function(x), record(x), strict=True):
        assert torch.equal(result, expected)


def test_large_constants_are_not_kept():
    _, names = simplify(lambda x: x + torch.zeros(2**17), torch.ones(2**17))
    assert names == ["aten.zeros.default", "aten.add.Tensor"]


def test_a_constant_result_is_made_anew_so_that_a_caller_may_change_it():
    function, _ = simplify(lambda x: (x + 1, torch.zeros(3) + 1), torch.ones(2))
    function(torch.ones(2))[1].add_(1)
    assert function(torch.ones(2))[1].tolist() == [1.0, 1.0, 1.0]


def test_what_is_changed_in_place_is_made_anew():
    function, _ = simplify(lambda x: x + torch.tensor(1.0).add_(1), torch.ones(2))
    assert [function(torch.ones(2)).tolist() for _ in range(2)] == [[3.0, 3.0]] * 2


def test_no_graph_of_gradients_is_made_though_weights_are_passed():
    function, _ = simplify(lambda x, w: (x * w).sum(), torch.ones(3), torch.ones(3))
    assert not function(torch.ones(3), torch.ones(3, requires_grad=True)).requires_grad


@pytest.mark.parametrize("is_donated", [True, False])
@pytest.mark.parametrize("is_read_elsewhere", [True, False])
def test_only_a_donated_cache_that_is_read_nowhere_else_is_written_in_place(is_donated, is_read_elsewhere):
    def record(x, cache):
        written = cache.index_copy(0, torch.tensor([1]), x)
        return (written, cache.sum()) if is_read_elsewhere else (written,)

    module = make_fx(record)(torch.ones(1, 2), torch.zeros(3, 2))
    function = simplified(module, donated=[1] if is_donated else [])
    cache = torch.zeros(3, 2)
    written, *total = function(torch.full((1, 2), 5.0), cache)
    assert written.tolist() == [[0, 0], [5, 5], [0, 0]]
    assert total == ([0] if is_read_elsewhere else [])
    assert (written.data_ptr() == cache.data_ptr()) == (is_donated and not is_read_elsewhere)

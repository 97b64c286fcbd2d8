"""Keras's `jit_compile=True` on PyTorch: layers and models have the losses that they have without."""

import dataclasses
import functools

import keras
import numpy as np
import pytest

from tests.layers.test_contract import CASES, D, T
from tests.models.test_language_model import CONTEXT, SMALL, VOCABULARY

if keras.backend.backend() != "torch":
    pytest.skip("of torch.compile", allow_module_level=True)

import torch

from tests.conftest import often

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, which traces Keras: as errors they end in it
FULL_GRAPH = ("Dense", "TransformerBlock", "CrossAttention", "MultiHeadSelfAttention", "MinGRU", "RGLRU")
ROWS = 2


@pytest.fixture(autouse=True)
def backend(request, monkeypatch):
    """Let torch.compile only trace, which takes seconds, where a test does not ask for a backend."""
    name = getattr(request, "param", "aot_eager")
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=name))
    yield
    torch._dynamo.reset()


def inputs_of(case):
    rng = np.random.default_rng(0)
    x, context = (rng.normal(size=(ROWS, length, D)).astype("float32") for length in (T, T - 1))
    return (x, context) if case.context else (x,)


def losses(make, arrays, target, loss, jit_compile, trains=True):
    """Return the losses of three steps, or of two evaluations where dropout draws other numbers."""
    keras.utils.set_random_seed(0)
    model = make()
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=jit_compile)
    step = model.train_on_batch if trains else model.test_on_batch
    return [step([*arrays] if len(arrays) > 1 else arrays[0], target) for _ in range(3 if trains else 2)]


@often("name", [*CASES], ("LSTM", "Mamba2"))
def test_a_layer_trains_as_without(name):
    case = CASES[name]
    arrays = inputs_of(case)

    def model():
        inputs = [keras.Input(array.shape[1:], batch_size=ROWS) for array in arrays]
        return keras.Model(
            inputs if case.context else inputs[0],
            case.make()(inputs[0], **({"context": inputs[1]} if case.context else {})),
        )

    args = model, arrays, np.zeros(model().output_shape, "float32"), "mse"
    compiled, eager = (losses(*args, jit_compile, not case.dropout) for jit_compile in (True, False))
    np.testing.assert_allclose(compiled, eager, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)], indirect=True)
@often("name", [*SMALL], ("transformer",))
def test_a_model_trains_as_without(name, request):
    if "inductor" in request.node.name and name != "transformer":
        pytest.skip("one model speaks for all: it takes a minute")
    config = dataclasses.replace(
        SMALL[name], **{f: 0.0 for f in ("dropout", "recurrent_dropout") if hasattr(SMALL[name], f)}
    )
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, CONTEXT))
    args = lambda: config.build_model(VOCABULARY), (ids,), ids, keras.losses.SparseCategoricalCrossentropy(True)
    compiled, eager = losses(*args, True), losses(*args, False)
    np.testing.assert_allclose(compiled, eager, rtol=1e-4)
    assert compiled[-1] < compiled[0]


@often("name", [*FULL_GRAPH], ("TransformerBlock",))
def test_a_layer_is_one_graph(name):
    case = CASES[name]
    x, *context = map(torch.tensor, inputs_of(case))
    layer = case.make()
    expected = layer(x, **({"context": context[0]} if context else {}))
    y = torch.compile(lambda x: layer(x, **({"context": context[0]} if context else {})), fullgraph=True)(x)
    torch.testing.assert_close(y, expected)


def test_a_transformer_is_one_graph_and_has_the_gradients_of_its_eager_call(randomize):
    model = randomize(dataclasses.replace(SMALL["transformer"], dropout=0.0).build_model(VOCABULARY))
    ids = torch.tensor(np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, CONTEXT)))
    model(ids)
    weights = [v.value for v in model.trainable_variables]
    results = [
        torch.autograd.grad(function(ids).square().sum(), weights)
        for function in (model, torch.compile(lambda ids: model(ids), fullgraph=True))
    ]
    for ours, theirs in zip(*results, strict=True):
        assert ours.abs().max() > 0
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(ours.abs().max()))

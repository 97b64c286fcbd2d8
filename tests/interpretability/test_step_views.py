"""What a step shows is what `keras_seq.interpretability` finds in the whole text."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import interpretability
from keras_seq.interpretability.step_views import step_with_views
from keras_seq.interpretability.traces import lstm_signals
from keras_seq.layers import RotaryPositions, TransformerBlock
from keras_seq.models import Ensemble, LanguageModel, LSTMConfig
from keras_seq.models.config import tiny_config

pytestmark = pytest.mark.any_backend
numpy = ops.convert_to_numpy
V, LENGTH = 11, 3
IDS = np.random.default_rng(0).integers(V, size=(1, LENGTH)).astype("int32")
SIZES = {"embedding_dim": 8, "units": 8, "num_layers": 2, "feed_forward_dim": 12, "context_length": LENGTH}


def read(model):
    """The views of each position, whose logits are those of the whole pass."""
    expected, state, positions = numpy(model(IDS)), model.get_initial_state(1), []
    for t in range(LENGTH):
        logits, state, views = step_with_views(model, IDS[:, t : t + 1], state)
        np.testing.assert_allclose(numpy(logits), expected[:, t], atol=1e-4)
        positions.append(views)
    return positions


def of(positions, kind, layer, name):
    """A tensor of a view at all positions."""
    found = [view.tensors[name] for views in positions for view in views if (view.kind, view.layer) == (kind, layer)]
    assert len(found) == len(positions)
    return [numpy(x) for x in found]


GATES = {"use_output_gate": True, "use_sinks": True, "use_forget_gate": True}


@pytest.mark.parametrize(("name", "options"), [("transformer", GATES), ("hybrid", {}), ("gpt2", {})], ids=str)
def test_attention_and_the_lens_are_those_of_the_text(randomize, name, options):
    model = randomize(tiny_config(name, **SIZES, **options).build_model(V))
    positions = read(model)
    assert {view.kind for views in positions for view in views} <= {"attention", "lens", "state"}
    assert not [view for views in positions for view in views if view.kind == "state" and "decay" in str(view.tensors)]
    for layer, expected in interpretability.attention_weights(model, IDS).items():
        slots = of(positions, "attention", layer, "positions")
        for t, (weights, slot) in enumerate(zip(of(positions, "attention", layer, "weights"), slots, strict=True)):
            is_filled = slot[0] >= 0
            np.testing.assert_array_equal(slot[0][is_filled], np.arange(t + 1)[-is_filled.sum() :])
            np.testing.assert_allclose(weights[0, :, 0][:, is_filled], expected[0][:, t, slot[0][is_filled]], atol=1e-5)
            assert not weights[0, :, 0][:, ~is_filled].any()
    lens = interpretability.logit_lens(model, IDS)
    assert len(lens) >= 3
    for layer, expected in lens.items():
        np.testing.assert_allclose(np.stack(of(positions, "lens", "", layer), 1), expected, atol=1e-4)


def test_the_weights_of_a_sliding_window_have_the_positions_that_it_sees(randomize):
    block = TransformerBlock(2, 12, causal=True, positions=RotaryPositions(), sliding_window=2)
    model = LanguageModel(keras.layers.Embedding(V, 8), [block], keras.layers.Dense(V), context_length=LENGTH)
    model.build((None, None))
    randomize(model)
    positions = read(model)
    (expected,) = interpretability.attention_weights(model, IDS).values()
    layer = next(view.layer for view in positions[0] if view.kind == "attention")
    for t, (weights, slot) in enumerate(
        zip(of(positions, "attention", layer, "weights"), of(positions, "attention", layer, "positions"), strict=True)
    ):
        row = np.zeros((2, LENGTH))
        row[:, slot[0][slot[0] >= 0]] = weights[0, :, 0][:, slot[0] >= 0]
        np.testing.assert_allclose(row, expected[0][:, t], atol=1e-5)


def test_gates_are_those_of_the_equations(randomize):
    model = randomize(LSTMConfig(6, 5, num_layers=2).build_model(V))
    positions, x = read(model), model.embedding(IDS)
    for layer in (block for block in model.blocks if not isinstance(block, keras.layers.Dropout)):
        expected = lstm_signals(layer, x, layer(x))
        names = {"i": "input gate", "f": "forget gate", "o": "output gate", "c": "cell state c", "h": "output h"}
        for letter, name in names.items():
            found = np.concatenate(of(positions, "gates", layer.name, name))
            np.testing.assert_allclose(found, expected[letter], atol=1e-5)
        x = layer(x)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_the_gates_of_a_document_are_those_of_it_by_itself(randomize, name):
    model = randomize(tiny_config(name, **{**SIZES, "num_layers": 1}).build_model(V))
    model.document_token = 0
    ids, gates = np.array([[0, 1, 2, 0, 3, 1]]), []
    for text in (ids, ids[:, 3:]):
        state = model.get_initial_state(1)
        for t in range(text.shape[1]):
            _, state, views = step_with_views(model, text[:, t : t + 1], state)
            gates.append([numpy(x) for view in views if view.kind == "gates" for x in view.tensors.values()])
    assert gates[0]
    for inside, alone in zip(gates[3:6], gates[6:], strict=True):
        for x, y in zip(inside, alone, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.parametrize("name", ["gru", "mingru", "minlstm"])
def test_other_gates_explain_the_outputs(randomize, name):
    """z of a GRU and of minGRU is between the state before and a candidate; the gates of minLSTM add up to one."""
    model = randomize(tiny_config(name, **{**SIZES, "num_layers": 1}).build_model(V))
    positions = read(model)
    (layer,) = {view.layer for view in positions[0] if view.kind == "gates"}
    for gate in {key for view in positions[0] if view.kind == "gates" for key in view.tensors} - {"output h"}:
        values = np.concatenate(of(positions, "gates", layer, gate))
        assert ((values > 0) & (values < 1)).all()
    if name == "gru":
        x, block = model.embedding(IDS), model.blocks[0]
        h = np.concatenate([np.zeros((1, 1, 8)), numpy(block(x))[:, :-1]], 1)
        z = numpy(block.project_inputs(x)) + h @ numpy(block.recurrent_kernel)
        if block.reset_after:
            z = z + numpy(block.bias[1])
        update = 1 / (1 + np.exp(-z[..., :8]))
        np.testing.assert_allclose(np.stack(of(positions, "gates", layer, "update gate"), 1), update, atol=1e-5)


@pytest.mark.parametrize("name", ["mamba", "rwkv7", "xlstm", "rnn"])
def test_states_are_those_of_the_step(randomize, name):
    model = randomize(tiny_config(name, **{**SIZES, "num_layers": 1}).build_model(V), scale=0.2)
    positions, state = read(model), model.get_initial_state(1)
    for t, views in enumerate(positions):
        _, state = model.step(IDS[:, t : t + 1], state)
        tensors = [numpy(x) for x in keras.tree.flatten(state)]
        shown = [numpy(x) for view in views if view.kind == "state" for x in view.tensors.values()]
        assert shown
        assert all(any(x.shape == y.shape and np.allclose(x, y, atol=1e-5) for y in tensors) for x in shown)


def test_a_model_without_blocks_has_no_views():
    model = Ensemble([LSTMConfig(3, 4).build_model(V), LSTMConfig(3, 4).build_model(V)])
    assert not any(read(model))

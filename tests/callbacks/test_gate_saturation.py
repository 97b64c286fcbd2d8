import keras
import numpy as np
import pytest

from keras_seq import layers
from keras_seq.callbacks import GateSaturation
from keras_seq.callbacks.gate_saturation import gate_values
from keras_seq.layers import GRU, LSTM, Bidirectional, MinGRU, PreNormResidual, Stateful
from keras_seq.layers.introspection import gates
from keras_seq.models import MinLSTMConfig
from tests.callbacks.conftest import MODELS, VOCABULARY

X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")


def test_gates_that_are_driven_open_or_closed_are_counted(rows):
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    units = 4
    bias = np.repeat([-9.0, 9.0, 0.0, 0.0], units)  # input closed, forget open, output half open
    model.blocks[0].set_weights([np.zeros((3, 16)), np.zeros((4, 16)), bias])
    summaries = GateSaturation(rows).compute_summaries(model)
    assert summaries.scalars == {
        "gate_saturation/closed/lstm_0/input": 1,
        "gate_saturation/open/lstm_0/input": 0,
        "gate_saturation/closed/lstm_0/forget": 0,
        "gate_saturation/open/lstm_0/forget": 1,
        "gate_saturation/closed/lstm_0/output": 0,
        "gate_saturation/open/lstm_0/output": 0,
    }
    assert summaries.histograms["gates/lstm_0/output"].shape == (*rows.shape, units)
    np.testing.assert_allclose(summaries.histograms["gates/lstm_0/output"], 0.5)


def test_shares_are_of_all_values(rows, randomize):
    model = randomize(MODELS["lstm"].build_model(VOCABULARY.vocabulary_size), scale=3.0)
    summaries = GateSaturation(rows).compute_summaries(model)
    for gate in ("input", "forget", "output"):
        values = summaries.histograms[f"gates/lstm_0/{gate}"].ravel().tolist()
        low, high = (summaries.scalars[f"gate_saturation/{side}/lstm_0/{gate}"] for side in ("closed", "open"))
        assert low == pytest.approx(sum(v < 0.1 for v in values) / len(values))
        assert high == pytest.approx(sum(v > 0.9 for v in values) / len(values))
        assert 0 < low < 1
        assert 0 < high < 1


def test_layers_inside_of_layers_are_found_under_names_of_their_own(rows):
    ids = keras.Input((rows.shape[1],), batch_size=len(rows), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY.vocabulary_size, 4)(ids)
    x = Stateful(
        PreNormResidual([GRU(4, name="gru", return_sequences=True)], name="block"),
        batch_size=len(rows),
        name="stateful",
    )(x)
    x = PreNormResidual([MinGRU(4, name="mingru", return_sequences=True)], name="block_2")(x)
    x = Bidirectional(LSTM(2, name="lstm", return_sequences=True), name="both")(x)
    found = {name: [*of_layer] for name, of_layer in gate_values(keras.Model(ids, x), rows).items()}
    assert found.pop("block/gru") == ["update", "reset"]
    assert found.pop("block_2/mingru") == ["update"]
    assert found == {name: ["input", "forget", "output"] for name in ("both/lstm", "both/backward_lstm")}


def test_blocks_of_a_model_do_not_hide_each_other(rows):
    model = MinLSTMConfig(embedding_dim=4, units=4, num_layers=2, feed_forward_dim=4).build_model(
        VOCABULARY.vocabulary_size
    )
    assert [*gate_values(model, rows)] == ["block_0/minlstm", "block_1/minlstm"]
    assert "call" not in model.blocks[0].layers[1].__dict__


def test_a_document_has_the_gates_that_it_has_by_itself(rows, randomize):
    model = randomize(MODELS["lstm"].build_model(VOCABULARY.vocabulary_size), scale=1.0)
    model.document_token = 0
    ids = np.array([[0, 1, 2, 0, 3, 1]])
    inside, alone = gate_values(model, ids), gate_values(model, ids[:, 3:])
    for layer, layer_gates in alone.items():
        for gate, values in layer_gates.items():
            np.testing.assert_allclose(inside[layer][gate][:, 3:], values, atol=1e-6)


def test_a_state_that_is_handed_in_counts(rows, randomize):
    """A decoder starts from its encoder's state."""
    x, h = keras.Input((3, 2)), keras.Input((4,))
    model = randomize(keras.Model([x, h], GRU(4, name="gru", return_sequences=True)(x, state=h)), scale=1.0)
    given = np.ones((1, 3, 2), "float32")
    update, other = (gate_values(model, [given, np.full((1, 4), v, "float32")])["gru"]["update"] for v in (0, 2))
    kernel, recurrent, bias = (weight.numpy()[..., :4] for weight in model.weights)
    z = given[:, 0] @ kernel + bias[0] + np.full((1, 4), 2.0) @ recurrent + bias[1]
    np.testing.assert_allclose(other[:, 0], 1 / (1 + np.exp(-z)), atol=1e-5)
    assert np.abs(update - other)[:, 0].max() > 0.01


@pytest.mark.parametrize("options", [{}, {"return_sequences": True}, {"go_backwards": True}, {"return_state": True}])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_the_gates_are_those_of_our_layer_with_its_weights(name, options):
    theirs, ours = getattr(keras.layers, name)(3, name="theirs", **options), getattr(layers, name)(3)
    x = keras.Input((5, 4))
    y = theirs(x)
    model = keras.Model(x, y[0] if isinstance(y, list | tuple) else y)
    ours.build(X.shape)
    theirs.set_weights([np.random.default_rng(n).normal(size=w.shape) for n, w in enumerate(theirs.weights)])
    ours.set_weights(theirs.get_weights())
    read = np.flip(X, axis=1) if options.get("go_backwards") else X
    h, steps = ours.get_initial_state(2), []
    for t in range(5):
        y, h = ours.step(read[:, t], h)
        steps.append(y)
    expected = gates(ours, read, np.stack(steps, axis=1))
    found = gate_values(model, X)["theirs"]
    assert found.keys() == expected.keys()
    for gate, values in found.items():
        np.testing.assert_allclose(values, expected[gate], atol=1e-5)


def test_activations_of_ones_own_count_and_stateful_layers_are_left_out():
    x = keras.Input((5, 4), batch_size=2)
    layer = keras.layers.LSTM(3, recurrent_activation="hard_sigmoid", unit_forget_bias=False, name="hard")
    model = keras.Model(x, [layer(x), keras.layers.GRU(3, stateful=True)(x)])
    layer.set_weights([100 * w for w in layer.get_weights()])
    found = gate_values(model, X)
    assert [*found] == ["hard"]
    assert {0.0, 1.0} <= {*found["hard"]["input"].ravel().tolist()}
